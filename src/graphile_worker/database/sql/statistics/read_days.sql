-- Statistics of a period with whole days: these from the days that are folded, the rest from the hours, and from the minutes
-- that are not folded into them yet.
--
-- $1 timestamptz       from this hour
-- $2 timestamptz       to this time, exclusive; or null
-- $3 text              task, or null for all
-- $4 double precision  seconds of a step: 86400; or null for one step
-- $5 boolean           by task
-- $6 timestamptz       the first whole day
-- $7 timestamptz       the end of the last whole day; or null
-- Returns start (seconds since 1970) and task, each null unless asked for, pool_id (null), and the sums.
with
:include folded_until
,
whole as (
  select least(folded.until, coalesce($7::timestamptz, 'infinity'::timestamptz)) as until
  from folded
),
counted as (
  select
    days.day as at, days.task, days.completed, days.failed, days.permanently_failed,
    days.run_seconds, days.wait_seconds, days.longest, days.run_times, days.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_days as days
  where days.day >= $6::timestamptz
  and days.day < (select whole.until from whole)
  and ($3::text is null or days.task = $3::text)
  union all
  select
    hours.hour, hours.task, hours.completed, hours.failed, hours.permanently_failed,
    hours.run_seconds, hours.wait_seconds, hours.longest, hours.run_times, hours.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= $1::timestamptz
  and hours.hour < $6::timestamptz
  and ($3::text is null or hours.task = $3::text)
  union all
  select
    hours.hour, hours.task, hours.completed, hours.failed, hours.permanently_failed,
    hours.run_seconds, hours.wait_seconds, hours.longest, hours.run_times, hours.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= (select greatest(whole.until, $6::timestamptz) from whole)
  and hours.hour < coalesce($2::timestamptz, 'infinity'::timestamptz)
  and ($3::text is null or hours.task = $3::text)
  union all
:include unfolded_minutes
)
:include statistics_by_step
