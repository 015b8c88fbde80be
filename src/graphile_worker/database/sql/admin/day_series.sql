-- What workers of this package did, by time and task: from the days that are folded, the hours of later ones, and the
-- minutes that are not folded into hours yet.
--
-- $1 timestamptz       from this day
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              task, or null for all
-- Returns step (from 0), task, completed, failed (attempts, those that were the last one included), run_seconds.
with
:include folded_until
,
counted as (
  select days.day as at, days.task, days.completed, days.failed, days.permanently_failed, days.run_seconds
  from :GRAPHILE_WORKER_SCHEMA._private_py_days as days
  where days.day >= $1::timestamptz
  and days.day < least($2::timestamptz, (select folded.until from folded))
  and ($4::text is null or days.task = $4::text)
  union all
  select hours.hour, hours.task, hours.completed, hours.failed, hours.permanently_failed, hours.run_seconds
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= greatest($1::timestamptz, (select folded.until from folded))
  and hours.hour < $2::timestamptz
  and ($4::text is null or hours.task = $4::text)
  union all
:include unfolded_counts
)
:include counts_by_step
