-- Waiting jobs whose named queue has no row, for the doctor: a fetch locks the row of the queue, so they never run.
-- Skips from queue to queue in the index of waiting jobs of named queues (own_objects/0002_queue_indexes).
-- $1 how many queues to look at, or null for all.
-- Returns job_queue_id, and job_id and task_identifier of its next job; at most 100 rows.
with recursive waiting_queue (id, step) as (
    (
        select jobs.job_queue_id, 1 from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available and jobs.job_queue_id is not null
        order by jobs.job_queue_id limit 1
    )
    union all
    select (
        select jobs.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available and jobs.job_queue_id is not null and jobs.job_queue_id > last.id
        order by jobs.job_queue_id limit 1
    ), last.step + 1
    from waiting_queue as last
    where last.id is not null and ($1::integer is null or last.step < $1::integer)
)
select
    waiting_queue.id as job_queue_id,
    next.id as job_id,
    coalesce(tasks.identifier, '') as task_identifier
from waiting_queue
cross join lateral (
    select jobs.id, jobs.task_id from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.is_available and jobs.job_queue_id = any (array[waiting_queue.id]) -- see write_outcomes
    order by jobs.job_queue_id, jobs.priority, jobs.run_at
    limit 1
) as next
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = next.task_id
where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queues where queues.id = waiting_queue.id
)
order by waiting_queue.id
limit 100
