-- A job with the names of its task and its queue, its state, and when it failed permanently.
select
:include job_columns
    coalesce(tasks.identifier, '') as task_identifier,
    pg_catalog.regexp_replace(job_queues.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name,
    case
        when job.locked_at is not null then 'locked'
        when not job.is_available then 'failed'
        when job.run_at > now() then 'scheduled'
        else 'ready'
    end as state,
    case when not job.is_available and job.locked_at is null then
:include failed_at
    end as failed_at
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
