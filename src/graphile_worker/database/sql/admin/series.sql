-- Figures over time, for the charts.

-- statement: minutes_by_step @times
-- What workers of this package did, by time and task, from the minutes; in the variant `times`, how long it took.
--
-- $1 timestamptz       from this minute
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              task, or null for all
-- Returns step (from 0), task, completed, failed (attempts, those that were the last one included), run_seconds; in the
-- variant step, task, longest, run_times, wait_times, and a step and task may have several rows.
with counted as (
  select
    period.minute as at, period.task,
:include measures
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as period
  where period.minute >= $1::timestamptz
  and period.minute < $2::timestamptz
  and ($4::text is null or period.task = $4::text)
)
:include by_step

-- statement: hours_by_step @times
-- The same from the hours and the minutes that are not folded into them yet.
with counted as (
  select
    period.hour as at, period.task,
:include measures
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as period
  where period.hour >= $1::timestamptz
  and period.hour < $2::timestamptz
  and ($4::text is null or period.task = $4::text)
  union all
:include unfolded
)
:include by_step

-- statement: days_by_step @times
-- The same from the days that are folded, the hours of later ones, and the minutes that are not folded into hours yet.
with
:include folded_until
,
counted as (
  select
    period.day as at, period.task,
:include measures
  from :GRAPHILE_WORKER_SCHEMA._private_py_days as period
  where period.day >= $1::timestamptz
  and period.day < least($2::timestamptz, (select folded.until from folded))
  and ($4::text is null or period.task = $4::text)
  union all
  select
    period.hour, period.task,
:include measures
  from :GRAPHILE_WORKER_SCHEMA._private_py_hours as period
  where period.hour >= greatest($1::timestamptz, (select folded.until from folded))
  and period.hour < $2::timestamptz
  and ($4::text is null or period.task = $4::text)
  union all
:include unfolded
)
:include by_step

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

-- part: measures
    period.completed, period.failed, period.permanently_failed, period.run_seconds

-- part: measures@times
    period.longest, period.run_times, period.wait_times

-- part: measures_of_minutes
    period.completed::bigint, period.failed::bigint, period.permanently_failed::bigint, period.run_seconds

-- part: measures_of_minutes@times
    period.longest, period.run_times::bigint[], period.wait_times::bigint[]

-- part: unfolded
  -- $1, $2 and $4: from, to and task, as for the hours.
  select
    period.minute, period.task,
:include measures_of_minutes
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as period
  where period.pool_id <> ''
  and period.minute >= $1::timestamptz
  and period.minute < $2::timestamptz
  and ($4::text is null or period.task = $4::text)

-- statement: finished_of_queue
-- Kept jobs of one queue by the time they ended, among the latest of all queues. Needs own_objects/history, and the settings
-- of history/read_in_order, so that the index on finished_at is read up to the limit.
--
-- $1 timestamptz       from this time
-- $2 timestamptz       to this time, exclusive
-- $3 double precision  seconds of a step
-- $4 text              queue name
-- $5 integer           how many finished jobs are read at most
-- Returns is_cut (whether there are more), since (the end of the earliest that was read, or of the earliest of the history if
-- all were), step (from 0), completed, failed; one row with a null step if there is no job of the queue.
with latest as materialized (
  select history.finished_at, history.state, history.queue_name
  from :GRAPHILE_WORKER_SCHEMA._private_py_history as history
  where history.finished_at >= $1::timestamptz
  and history.finished_at < $2::timestamptz
  order by history.finished_at desc
  limit $5::integer
),
ends as (
  select count(*) >= $5::integer::bigint as is_cut, min(latest.finished_at) as earliest from latest
)
select
  ends.is_cut,
  case
    when ends.is_cut then ends.earliest
    else (
      select history.finished_at
      from :GRAPHILE_WORKER_SCHEMA._private_py_history as history
      order by history.finished_at
      limit 1
    )
  end as since,
  counted.step, counted.completed, counted.failed
from ends
left join (
  select
    floor(
      (date_part('epoch', latest.finished_at) - date_part('epoch', $1::timestamptz)) / $3::double precision
    )::integer as step,
    count(*) filter (where latest.state = 'completed') as completed,
    count(*) filter (where latest.state = 'failed') as failed
  from latest
  where latest.queue_name = $4::text
  group by 1
) as counted on true

-- part: by_step
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

-- part: by_step@times
-- Several rows of a step and task are added up by the reader: one row is what there usually is, and sums of arrays would
-- take most of the time.
select
  floor(
    (date_part('epoch', counted.at) - date_part('epoch', $1::timestamptz)) / $3::double precision
  )::integer as step,
  counted.task,
  counted.longest,
  counted.run_times,
  counted.wait_times
from counted
