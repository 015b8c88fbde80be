-- Delete what is older than it is kept, a limited number of rows of each table.
--
-- $1 interval  how long minutes are kept, once they are folded
-- $2 interval  how long hours are kept
-- $3 interval  how long samples are kept
-- $4 integer   how many rows at most
-- Returns the largest of the three numbers of deleted rows.
with minutes as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_minutes
  where ctid = any (array(
    select ctid
    from :GRAPHILE_WORKER_SCHEMA._private_py_minutes
    where minute < now() - $1::interval and pool_id = ''
    order by minute
    limit $4::integer
    for update skip locked
  ))
  returning 1
),
hours as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_hours
  where ctid = any (array(
    select ctid
    from :GRAPHILE_WORKER_SCHEMA._private_py_hours
    where hour < now() - $2::interval
    order by hour
    limit $4::integer
    for update skip locked
  ))
  returning 1
),
samples as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_samples
  where ctid = any (array(
    select ctid
    from :GRAPHILE_WORKER_SCHEMA._private_py_samples
    where at < now() - $3::interval
    order by at
    limit $4::integer
    for update skip locked
  ))
  returning 1
)
select greatest(
  (select count(*) from minutes), (select count(*) from hours), (select count(*) from samples)
)
