-- What workers of this package did, by time and task, from the minutes.
--
-- $1 timestamptz       from this minute
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              task, or null for all
-- Returns step (from 0), task, completed, failed (attempts, those that were the last one included), run_seconds.
select
  floor(
    (date_part('epoch', counted.minute) - date_part('epoch', $1::timestamptz)) / $3::double precision
  )::integer as step,
  counted.task,
  sum(counted.completed)::bigint as completed,
  sum(counted.failed)::bigint + sum(counted.permanently_failed)::bigint as failed,
  sum(counted.run_seconds) as run_seconds
from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as counted
where counted.minute >= $1::timestamptz
and counted.minute < $2::timestamptz
and ($4::text is null or counted.task = $4::text)
group by 1, 2
