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
