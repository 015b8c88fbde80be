-- Fail jobs permanently that are not locked.
-- $1 job ids as texts, $2 the reason (null for the default).
-- Returns the changed jobs' columns in the order of Job.
select
:include job_columns
    coalesce((
        select tasks.identifier
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.id = job.task_id
    ), '') as task_identifier
from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(job_ids => $1::text[]::bigint[], error_message => $2::text) as job
order by job.id
