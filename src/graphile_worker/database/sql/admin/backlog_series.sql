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
