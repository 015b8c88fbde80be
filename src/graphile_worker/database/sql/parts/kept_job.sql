    -- The columns of a job that asks to be kept, in the order of Job's fields, as JSON; null for other jobs.
    case when job.flags::text like '%"py:keep%' then (
        select pg_catalog.row_to_json(found)
        from (
            select
:include job_columns
                coalesce((
                    select tasks.identifier
                    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
                    where tasks.id = job.task_id
                ), '') as task_identifier
        ) as found
    ) end as kept
