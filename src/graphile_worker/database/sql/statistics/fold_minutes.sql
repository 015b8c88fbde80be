-- Fold the rows of pools: into one row for each minute and task, and into the hours. Every count enters the hours
-- exactly once, however late it was written.
--
-- $1 interval  age of the minutes to fold
-- $2 integer   how many rows at most
-- Returns the number of rows that were folded. Rows that a pool writes at this moment are left for the next time.
with counted as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_minutes
  where ctid = any (array(
    select ctid
    from :GRAPHILE_WORKER_SCHEMA._private_py_minutes
    where pool_id <> '' and minute < now() - $1::interval
    order by minute
    limit $2::integer
    for update skip locked
  ))
  returning *
),
minutes as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_minutes as total (
    minute, task, pool_id,
    completed, failed, permanently_failed, run_seconds, wait_seconds, longest, run_times, wait_times
  )
  select
    counted.minute, counted.task, ''::text,
:include summed_statistics
  from counted
  group by counted.minute, counted.task
  order by counted.minute, counted.task
  on conflict (minute, task, pool_id)
:include added_statistics
),
hours as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_hours as total (
    hour, task,
    completed, failed, permanently_failed, run_seconds, wait_seconds, longest, run_times, wait_times
  )
  select
    to_timestamp(floor(date_part('epoch', counted.minute) / 3600::double precision) * 3600::double precision) as hour,
    counted.task,
:include summed_statistics
  from counted
  group by 1, 2
  order by 1, 2
  on conflict (hour, task)
:include added_statistics
)
select count(*) from counted
