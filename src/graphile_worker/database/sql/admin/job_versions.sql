-- What changes when a job does, for jobs that are being looked at.
--
-- $1 bigint[]  ids
-- Returns id and version, for the jobs that exist.
select
  jobs.id,
  pg_catalog.concat_ws('/'::text, jobs.revision, jobs.attempts, jobs.locked_at, jobs.run_at, jobs.max_attempts) as version
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
where jobs.id = any ($1::bigint[])
