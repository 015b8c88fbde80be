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
