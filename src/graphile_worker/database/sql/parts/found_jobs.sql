-- The columns of a job in a list of the dashboard, for rows of `job`; $2 to $11 as in parts/matching_jobs, and the last
-- parameter of the statement is the longest payload to return, in bytes.
    job.id,
    coalesce(tasks.identifier, '') as task,
    pg_catalog.regexp_replace(job_queues.queue_name, ' \[[1-9][0-9]*\]$', '') as queue,
    case
        when job.locked_at is not null then 'locked'
        when not job.is_available then 'failed'
        when job.run_at > now() then 'scheduled'
        else 'ready'
    end as state,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    pg_catalog.left(job.last_error, 4000) as last_error,
    date_part('epoch', job.created_at) as created_at,
    job.key,
    job.flags::text as flags,
    job.revision,
    job.locked_by,
    date_part('epoch', job.locked_at) as locked_at,
    case when not job.is_available and job.locked_at is null then
:include failed_at
    end as failed_at,
    job_queues.locked_by as queue_locked_by,
