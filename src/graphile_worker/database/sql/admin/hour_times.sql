-- Run times and wait times by time and task, from the hours and the minutes that are not folded into them yet.
--
-- $1 timestamptz       from this hour
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              task, or null for all
-- Returns step (from 0), task, longest, run_times, wait_times; a step and task may have several rows.
with counted as (
  select hours.hour as at, hours.task, hours.longest, hours.run_times, hours.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= $1::timestamptz
  and hours.hour < $2::timestamptz
  and ($4::text is null or hours.task = $4::text)
  union all
:include unfolded_times
)
:include times_by_step
