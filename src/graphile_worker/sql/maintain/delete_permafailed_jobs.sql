-- Delete one portion of the jobs that are out of attempts and not locked, in the order of their ids.
-- $1 the id after which to begin, $2 how many at most.
-- Returns how many were deleted, and the last id among them. Jobs somebody works on right now are passed over.
with portion as (
    select jobs.id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.id > $1::bigint
    and jobs.attempts = jobs.max_attempts
    and not jobs.is_available and jobs.locked_at is null -- what the index of failed jobs holds
    order by jobs.id
    limit $2::integer
    for update skip locked
),
deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    using portion
    where jobs.id = portion.id
    returning jobs.id
)
select count(*) as deleted, max(deleted.id) as last_id
from deleted
