-- The jobs of `failed` by task.
select
    coalesce(tasks.identifier, '') as task_identifier,
    counted.jobs,
    counted.last_error
from (
    select
        failed.task_id,
        count(*) as jobs,
        (pg_catalog.array_agg(failed.last_error order by failed.failed_at desc))[1] as last_error
    from failed
    group by failed.task_id
) as counted
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id
order by counted.jobs desc, 1
