-- Named queues that are locked although none of their jobs is, for the doctor: they stay locked until the lock is four
-- hours old. Scans the jobs table. One snapshot, so a queue that is just being freed does not appear. Paused queues do not
-- appear either.
-- Returns queue_name, locked_by, age (seconds since it was locked).
select
    queues.queue_name,
    queues.locked_by,
    date_part('epoch', now()) - date_part('epoch', queues.locked_at) as age
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queues
where queues.locked_at is not null and queues.locked_by is distinct from 'py:hold'
and not exists (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where not jobs.is_available and jobs.locked_at is not null and jobs.job_queue_id = queues.id
)
order by queues.locked_at
limit 1000
