-- Jobs that failed for good, by task, in a part of the table, for the doctor.
-- $1 the percentage of the table's pages to look at; 100 counts all.
-- Returns task_identifier, jobs (as counted, not scaled up), and last_error of the one that failed last.
select
    coalesce(tasks.identifier, '') as task_identifier,
    counted.jobs,
    counted.last_error
from (
    select
        jobs.task_id,
        count(*) as jobs,
        (pg_catalog.array_agg(left(jobs.last_error, 300) order by jobs.updated_at desc))[1] as last_error
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system ($1::float4)
    where not jobs.is_available and jobs.locked_at is null
    group by jobs.task_id
) as counted
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id
order by counted.jobs desc, 1
