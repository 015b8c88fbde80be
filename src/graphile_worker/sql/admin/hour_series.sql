-- What workers of this package did, by time and task, from the hours and the minutes that are not folded into them yet.
--
-- $1 timestamptz       from this hour
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              task, or null for all
-- Returns step (from 0), task, completed, failed (attempts, those that were the last one included), run_seconds.
with counted as (
  select hours.hour as at, hours.task, hours.completed, hours.failed, hours.permanently_failed, hours.run_seconds
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= $1::timestamptz
  and hours.hour < $2::timestamptz
  and ($4::text is null or hours.task = $4::text)
  union all
  select
    minutes.minute, minutes.task, minutes.completed::bigint, minutes.failed::bigint, minutes.permanently_failed::bigint,
    minutes.run_seconds
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.pool_id <> ''
  and minutes.minute >= $1::timestamptz
  and minutes.minute < $2::timestamptz
  and ($4::text is null or minutes.task = $4::text)
)
select
  floor(
    (date_part('epoch', counted.at) - date_part('epoch', $1::timestamptz)) / $3::double precision
  )::integer as step,
  counted.task,
  sum(counted.completed)::bigint as completed,
  (sum(counted.failed) + sum(counted.permanently_failed))::bigint as failed,
  sum(counted.run_seconds) as run_seconds
from counted
group by 1, 2
