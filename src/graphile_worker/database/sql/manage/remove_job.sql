-- Delete the job with this key; a running job loses the key instead.
-- $1 job key.
-- Returns the job's columns in the order of Job; all null if no job has the key.
select
:include job_columns
    coalesce((
        select tasks.identifier
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.id = job.task_id
    ), '') as task_identifier
from :GRAPHILE_WORKER_SCHEMA.remove_job(job_key => $1::text) as job
