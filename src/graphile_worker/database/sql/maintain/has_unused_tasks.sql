-- Whether there is a task identifier that no job refers to.
-- $1 identifiers to keep.
-- Returns one boolean.
select exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    where not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.task_id = tasks.id
    )
    and tasks.identifier <> all ($1::text[])
) as found
