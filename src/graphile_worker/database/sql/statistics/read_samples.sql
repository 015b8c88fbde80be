-- Samples of the jobs table, with the server's counters as they were.
--
-- $1 timestamptz  from this time
-- $2 timestamptz  to this time, exclusive; or null
-- Returns the columns in their order, `at` in seconds since 1970. The last sample before the first one comes first, so
-- that its counters can be compared.
select
  date_part('epoch', samples.at) as at, samples.added, samples.deleted, samples.updated, samples.live,
  samples.ready, samples.scheduled, samples.failed, samples.is_estimate, samples.oldest_wait
from :GRAPHILE_WORKER_SCHEMA._private_py_samples as samples
where samples.at >= coalesce(
  (
    select earlier.at
    from :GRAPHILE_WORKER_SCHEMA._private_py_samples as earlier
    where earlier.at < $1::timestamptz
    order by earlier.at desc
    limit 1
  ),
  $1::timestamptz
)
and samples.at < coalesce($2::timestamptz, 'infinity'::timestamptz)
order by samples.at
