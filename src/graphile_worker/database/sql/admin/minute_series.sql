-- What workers of this package did, by time and task, from the minutes.
--
-- $1 timestamptz       from this minute
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              task, or null for all
-- Returns step (from 0), task, completed, failed (attempts, those that were the last one included), run_seconds.
with counted as (
  select
    minutes.minute as at, minutes.task, minutes.completed, minutes.failed, minutes.permanently_failed,
    minutes.run_seconds
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.minute >= $1::timestamptz
  and minutes.minute < $2::timestamptz
  and ($4::text is null or minutes.task = $4::text)
)
:include counts_by_step
