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
:include unfolded_counts
)
:include counts_by_step
