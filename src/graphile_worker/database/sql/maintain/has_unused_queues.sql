-- Whether there is a queue that is not locked and that no job refers to.
-- Returns one boolean.
select exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    where job_queues.locked_at is null
    and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.job_queue_id = job_queues.id
    )
) as found
