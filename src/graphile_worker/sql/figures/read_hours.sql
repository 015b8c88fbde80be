-- Figures from the hours, and from the minutes that are not folded into them yet.
--
-- $1 timestamptz  from this hour
-- $2 timestamptz  to this time, exclusive; or null
-- $3 text         task, or null for all
-- $4 boolean      by hour
-- $5 boolean      by task
-- Returns start (seconds since 1970) and task, each null unless asked for, pool_id (null), and the sums.
with counted as (
  select
    hours.hour, hours.task, hours.completed, hours.failed, hours.permanently_failed,
    hours.run_seconds, hours.wait_seconds, hours.longest, hours.run_times, hours.wait_times
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as hours
  where hours.hour >= $1::timestamptz
  and hours.hour < coalesce($2::timestamptz, 'infinity'::timestamptz)
  and ($3::text is null or hours.task = $3::text)
  union all
  select
    to_timestamp(floor(date_part('epoch', minutes.minute) / 3600::double precision) * 3600::double precision),
    minutes.task, minutes.completed::bigint, minutes.failed::bigint, minutes.permanently_failed::bigint,
    minutes.run_seconds, minutes.wait_seconds, minutes.longest,
    minutes.run_times::bigint[], minutes.wait_times::bigint[]
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.pool_id <> ''
  and minutes.minute >= $1::timestamptz
  and minutes.minute < coalesce($2::timestamptz, 'infinity'::timestamptz)
  and ($3::text is null or minutes.task = $3::text)
)
select
  case when $4::boolean then date_part('epoch', counted.hour) end as start,
  case when $5::boolean then counted.task end as task,
  null::text as pool_id,
:include summed_figures
from counted
group by 1, 2
order by 1, 2
