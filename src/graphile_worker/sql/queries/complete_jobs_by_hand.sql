-- Delete jobs that are not locked, as if they had run.
-- $1 job ids as texts.
-- Returns the deleted jobs' columns in the order of Job.
select
    job.id,
    job.payload::text as payload,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    job.last_error,
    date_part('epoch', job.created_at) as created_at,
    date_part('epoch', job.updated_at) as updated_at,
    job.key,
    date_part('epoch', job.locked_at) as locked_at,
    job.locked_by,
    job.revision,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id,
    coalesce((
        select tasks.identifier
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.id = job.task_id
    ), '') as task_identifier
from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => $1::text[]::bigint[]) as job
order by job.id
