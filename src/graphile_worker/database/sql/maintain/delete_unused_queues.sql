-- Delete queues that are not locked and that no job refers to.
-- The caller must hold the table lock, see lock_queues.
-- Returns how many were deleted.
with deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    where job_queues.locked_at is null
    and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.job_queue_id = job_queues.id
    )
    returning job_queues.id
)
select count(*) as deleted
from deleted
