-- How jobs that were retried stand.
-- $1 job ids.
-- Returns those that still exist: id, is_running, has_failed (an attempt since), last_error.
select
    job.id,
    job.locked_at is not null as is_running,
    job.locked_at is null and job.attempts > 0 as has_failed,
    pg_catalog."left"(job.last_error, 2000) as last_error
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($1::bigint[])
order by job.id
