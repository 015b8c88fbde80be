-- Figures over time, for the charts.

-- statement: minute_series
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

-- statement: hour_series
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

-- statement: day_series
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

-- statement: minute_times
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

-- statement: hour_times
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

-- statement: day_times
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

-- statement: backlog_series
-- Samples of the jobs table, summed up by time.
--
-- $1 timestamptz       from this time
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- Returns step (from 0), ready (mean), oldest_wait (largest, seconds), and how much the server's counters grew: added,
-- deleted and updated in `seconds`. What they grew over a restart of the server is unknown and left out.
with sample as (
  select
    samples.at, samples.ready, samples.oldest_wait,
    samples.added - pg_catalog.lag(samples.added) over (order by samples.at) as added,
    samples.deleted - pg_catalog.lag(samples.deleted) over (order by samples.at) as deleted,
    samples.updated - pg_catalog.lag(samples.updated) over (order by samples.at) as updated,
    date_part('epoch', samples.at) - pg_catalog.lag(date_part('epoch', samples.at)) over (order by samples.at) as seconds
  from :GRAPHILE_WORKER_SCHEMA._private_py_samples as samples
  where samples.at >= $1::timestamptz
  and samples.at < $2::timestamptz
)
select
  floor((date_part('epoch', sample.at) - date_part('epoch', $1::timestamptz)) / $3::double precision)::integer as step,
  avg(sample.ready)::double precision as ready,
  max(sample.oldest_wait) as oldest_wait,
  sum(sample.added) filter (where sample.added >= 0::bigint)::bigint as added,
  sum(sample.deleted) filter (where sample.deleted >= 0::bigint)::bigint as deleted,
  sum(sample.updated) filter (where sample.updated >= 0::bigint)::bigint as updated,
  sum(sample.seconds) filter (where sample.deleted >= 0::bigint) as seconds
from sample
group by 1

-- part: counts_by_step
-- $1: the first step; $3: seconds of a step.
select
  floor(
    (date_part('epoch', counted.at) - date_part('epoch', $1::timestamptz)) / $3::double precision
  )::integer as step,
  counted.task,
  sum(counted.completed)::bigint as completed,
  (sum(counted.failed) + sum(counted.permanently_failed))::bigint as failed,
  sum(counted.run_seconds) as run_seconds
from counted
group by 1, 2

-- part: times_by_step
-- $1: the first step; $3: seconds of a step. Several rows of a step and task are added up by the reader: one row is what
-- there usually is, and sums of arrays would take most of the time.
select
  floor(
    (date_part('epoch', counted.at) - date_part('epoch', $1::timestamptz)) / $3::double precision
  )::integer as step,
  counted.task,
  counted.longest,
  counted.run_times,
  counted.wait_times
from counted

-- part: unfolded_counts
  -- $1, $2 and $4: from, to and task, as for the hours.
  select
    minutes.minute, minutes.task, minutes.completed::bigint, minutes.failed::bigint, minutes.permanently_failed::bigint,
    minutes.run_seconds
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.pool_id <> ''
  and minutes.minute >= $1::timestamptz
  and minutes.minute < $2::timestamptz
  and ($4::text is null or minutes.task = $4::text)

-- part: unfolded_times
  -- $1, $2 and $4: from, to and task, as for the hours.
  select
    minutes.minute, minutes.task, minutes.longest, minutes.run_times::bigint[], minutes.wait_times::bigint[]
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.pool_id <> ''
  and minutes.minute >= $1::timestamptz
  and minutes.minute < $2::timestamptz
  and ($4::text is null or minutes.task = $4::text)
