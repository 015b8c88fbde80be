-- Minutes become hours and days, and old ones are deleted.

-- statement: fold_minutes
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

-- statement: fold_hours
-- Fold the hours of days that have ended into one row for each day and task. The days that were folded last are folded
-- again, in case statistics of theirs came late. Sums of hours only grow, so the larger one is the current one, whatever
-- other pools do at the same time.
--
-- $1 interval  age of the end of a day to fold
-- $2 interval  how far back to fold again
-- $3 interval  how much to fold at most
-- Returns whether there is more to fold.
with
:include folded_until
,
fresh as (
  select to_timestamp(
    floor(date_part('epoch', min(hours.hour)) / 86400::double precision) * 86400::double precision
  ) as day
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= (select folded.until from folded)
),
-- A day is over when no pool's statistics of it wait to be folded into the hours.
over as (
  select to_timestamp(
    floor(
      least(
        date_part('epoch', now() - $1::interval), date_part('epoch', min(minutes.minute))
      ) / 86400::double precision
    ) * 86400::double precision
  ) as until
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.pool_id <> ''
),
bounds as (
  select
    folded.until - $2::interval as since,
    least(over.until, coalesce(fresh.day, folded.until) + $3::interval) as until,
    fresh.day is not null and fresh.day + $3::interval < over.until as has_more
  from folded
  cross join fresh
  cross join over
),
days as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_days as total (
    day, task,
    completed, failed, permanently_failed, run_seconds, wait_seconds, longest, run_times, wait_times
  )
  select
    to_timestamp(floor(date_part('epoch', counted.hour) / 86400::double precision) * 86400::double precision) as day,
    counted.task,
:include summed_statistics
  from bounds
  join :GRAPHILE_WORKER_SCHEMA._private_py_hours as counted
    on counted.hour >= bounds.since and counted.hour < bounds.until
  group by 1, 2
  order by 1, 2
  on conflict (day, task)
  do update set
    completed = excluded.completed,
    failed = excluded.failed,
    permanently_failed = excluded.permanently_failed,
    run_seconds = excluded.run_seconds,
    wait_seconds = excluded.wait_seconds,
    longest = excluded.longest,
    run_times = excluded.run_times,
    wait_times = excluded.wait_times
  where excluded.completed + excluded.failed + excluded.permanently_failed
    > total.completed + total.failed + total.permanently_failed
)
select bounds.has_more
from bounds

-- statement: delete_old
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

-- statement: delete_old_days
-- Delete days that are older than they are kept.
--
-- $1 interval  how long
delete from :GRAPHILE_WORKER_SCHEMA._private_py_days
where day < now() - $1::interval
