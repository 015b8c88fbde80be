-- Run times and wait times by time and task: from the days that are folded, the hours of later ones, and the minutes
-- that are not folded into hours yet.
--
-- $1 timestamptz       from this day
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              task, or null for all
-- Returns step (from 0), task, longest, run_times, wait_times; a step and task may have several rows.
with
:include folded_until
,
counted as (
  select days.day as at, days.task, days.longest, days.run_times, days.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_days as days
  where days.day >= $1::timestamptz
  and days.day < least($2::timestamptz, (select folded.until from folded))
  and ($4::text is null or days.task = $4::text)
  union all
  select hours.hour, hours.task, hours.longest, hours.run_times, hours.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= greatest($1::timestamptz, (select folded.until from folded))
  and hours.hour < $2::timestamptz
  and ($4::text is null or hours.task = $4::text)
  union all
:include unfolded_times
)
:include times_by_step
