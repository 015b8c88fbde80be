-- permanently_fail_jobs(job_ids, error_message): use up the attempts of those jobs that are not running.
--
-- Returns the changed rows. Locks, keys and run_at stay as they are.

create or replace function :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(
    job_ids bigint[],
    error_message text default null
)
returns setof :GRAPHILE_WORKER_SCHEMA._private_jobs
language sql
as $body$
    update :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    set
        last_error = coalesce(permanently_fail_jobs.error_message, 'Manually marked as failed'),
        attempts = jobs.max_attempts,
        updated_at = now()
    where jobs.id = any (permanently_fail_jobs.job_ids)
    and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
    returning jobs.*;
$body$;
