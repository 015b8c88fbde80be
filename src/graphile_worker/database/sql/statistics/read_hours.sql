-- Statistics from the hours, and from the minutes that are not folded into them yet.
--
-- $1 timestamptz       from this hour
-- $2 timestamptz       to this time, exclusive; or null
-- $3 text              task, or null for all
-- $4 double precision  seconds of a step: 3600 or 86400; or null for one step
-- $5 boolean           by task
-- Returns start (seconds since 1970) and task, each null unless asked for, pool_id (null), and the sums.
with counted as (
  select
    hours.hour as at, hours.task, hours.completed, hours.failed, hours.permanently_failed,
    hours.run_seconds, hours.wait_seconds, hours.longest, hours.run_times, hours.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= $1::timestamptz
  and hours.hour < coalesce($2::timestamptz, 'infinity'::timestamptz)
  and ($3::text is null or hours.task = $3::text)
  union all
:include unfolded_minutes
)
:include statistics_by_step
