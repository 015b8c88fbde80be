-- Delete jobs that are not locked, as if they had run.
-- $1 job ids as texts.
-- Returns the deleted jobs' columns in the order of Job.
select
:include job_columns
    coalesce((
        select tasks.identifier
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.id = job.task_id
    ), '') as task_identifier
from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => $1::text[]::bigint[]) as job
order by job.id
