-- Jobs of limited tasks that run in pools which do not keep limits: those of Node and Rust. Scans the jobs table.
-- Returns for each limit, task and pool: limit_name, task_identifier, locked_by, jobs; a row of nulls for a limit without.
select limits.name as limit_name, found.task_identifier, found.locked_by, coalesce(found.jobs, 0) as jobs
from :GRAPHILE_WORKER_SCHEMA._private_py_limits as limits
left join lateral (
    select tasks.identifier as task_identifier, jobs.locked_by, count(*)::integer as jobs
    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    inner join :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs on jobs.task_id = tasks.id
    where tasks.identifier = any (limits.tasks) and jobs.locked_by is not null and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_py_workers as workers where workers.id = jobs.locked_by
    )
    group by tasks.identifier, jobs.locked_by
) as found on true
order by limits.name, found.task_identifier, found.locked_by
limit 1000
