-- Delete task identifiers that no job refers to.
-- $1 identifiers to keep.
-- The caller must hold the table lock, see lock_tasks.
-- Returns how many were deleted.
with deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    where not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.task_id = tasks.id
    )
    and tasks.identifier <> all ($1::text[])
    returning tasks.id
)
select count(*) as deleted
from deleted
