-- How long the oldest ready job usually waits, from the samples of the last day without the last half hour.
--
-- Returns the wait in seconds that nine of ten samples do not exceed; null if there are fewer than 60.
select case when count(*) >= 60::bigint then
  pg_catalog.percentile_cont(0.9::double precision) within group (order by samples.oldest_wait)
end
from :GRAPHILE_WORKER_SCHEMA._private_py_samples as samples
where samples.at >= now() - '1 day'::interval
and samples.at < now() - '30 minutes'::interval
