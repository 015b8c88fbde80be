-- Cleaning on request.

-- statement: delete_permafailed_jobs
-- Delete one batch of permanently failed jobs, by id.
-- $1 the id after which to start, $2 how many at most.
-- Returns how many were deleted, and the last id among them. Rows that another transaction has locked are skipped.
with batch as (
    select jobs.id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.id > $1::bigint
    and jobs.attempts = jobs.max_attempts
    and not jobs.is_available and jobs.locked_at is null -- the condition of the index of failed jobs
    order by jobs.id
    limit $2::integer
    for update skip locked
),
deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    using batch
    where jobs.id = batch.id
    returning jobs.id
)
select count(*) as deleted, max(deleted.id) as last_id
from deleted

-- statement: delete_unused_queues
-- Delete queues that are not locked and that no job refers to.
-- The caller must hold the table lock, see lock_queues.
-- Returns how many were deleted.
with deleted as (
    delete
:include unused_queues
    returning job_queues.id
)
select count(*) as deleted
from deleted

-- statement: delete_unused_tasks
-- Delete task identifiers that no job refers to.
-- $1 identifiers to keep.
-- The caller must hold the table lock, see lock_tasks.
-- Returns how many were deleted.
with deleted as (
    delete
:include unused_tasks
    returning tasks.id
)
select count(*) as deleted
from deleted

-- statement: force_unlock_workers
-- Unlock every job and queue that these pools have locked, and tell workers that jobs may be free (see announce_jobs).
-- $1 pool ids, as in locked_by.
select
    :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(worker_ids => $1::text[]),
    pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1,"freed":true}')

-- statement: has_unused_queues
-- Whether there is a queue that is not locked and that no job refers to.
-- Returns one boolean.
select exists (
    select
:include unused_queues
) as found

-- statement: has_unused_tasks
-- Whether there is a task identifier that no job refers to.
-- $1 identifiers to keep.
-- Returns one boolean.
select exists (
    select
:include unused_tasks
) as found

-- statement: lock_queues
-- Block until in-flight adds that have read a queue are committed, and keep new ones out.
lock table :GRAPHILE_WORKER_SCHEMA._private_job_queues in access exclusive mode

-- statement: lock_tasks
-- Block until in-flight adds that have read a task identifier are committed, and keep new ones out.
lock table :GRAPHILE_WORKER_SCHEMA._private_tasks in access exclusive mode

-- part: unused_queues
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    where job_queues.locked_at is null
    and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.job_queue_id = job_queues.id
    )

-- part: unused_tasks
    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    where not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.task_id = tasks.id
    )
    and tasks.identifier <> all ($1::text[])
