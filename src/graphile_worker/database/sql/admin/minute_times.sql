-- Run times and wait times by time and task, from the minutes.
--
-- $1 timestamptz       from this minute
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              task, or null for all
-- Returns step (from 0), task, longest, run_times, wait_times; a step and task may have several rows.
with counted as (
  select
    minutes.minute as at, minutes.task, minutes.longest, minutes.run_times, minutes.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.minute >= $1::timestamptz
  and minutes.minute < $2::timestamptz
  and ($4::text is null or minutes.task = $4::text)
)
:include times_by_step
