-- Jobs by task and state, in a sample of the table.
-- $1 the percentage of the table's pages to read; 100 counts all.
-- Returns task_identifier, state and jobs (as counted, not extrapolated).
select
    coalesce(tasks.identifier, '') as task_identifier,
    counted.state,
    counted.jobs
from (
    select
        jobs.task_id,
        case
            when jobs.locked_at is not null then 'locked'
            when not jobs.is_available then 'failed'
            when jobs.run_at > now() then 'scheduled'
            else 'ready'
        end as state,
        count(*) as jobs
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system ($1::float4)
    group by 1, 2
) as counted
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id
order by 1, 2
