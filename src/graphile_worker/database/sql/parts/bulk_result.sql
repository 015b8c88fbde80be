-- The answer of every bulk statement: the jobs of `changed` by task, those of them that are to be kept (an array of
-- jobs as JSON text), and how far the step has read.
select
    step.last_id,
    step.seen,
    coalesce(tasks.identifier, '') as task_identifier,
    coalesce(counted.jobs, 0) as jobs,
    coalesce(counted.asked, 0) as asked,
    coalesce(counted.failed, 0) as failed,
    counted.ids,
    counted.kept
from step
left join (
    select
        changed.task_id,
        count(*) as jobs,
        count(*) filter (where changed.is_asked) as asked,
        count(*) filter (where not changed.is_available) as failed,
        pg_catalog.array_agg(changed.id::text) filter (where changed.id is not null) as ids,
        (pg_catalog.json_agg(changed.kept) filter (where changed.kept is not null))::text as kept
    from changed
    group by changed.task_id
) as counted on true
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id
