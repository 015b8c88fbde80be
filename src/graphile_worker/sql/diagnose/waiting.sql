-- The job that has been ready for longest, for the doctor: reads the first job of each priority (at most 100) through
-- the workers' index, so the cost does not depend on the number of jobs. First jobs of locked queues are skipped: they
-- wait for a reason.
-- Returns task_identifier and age (seconds since it could have run); no row when none is ready.
with recursive first_of_priority as (
    (
        select jobs.id, jobs.priority, jobs.run_at, 1 as step
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.id, following.priority, following.run_at, first_of_priority.step + 1
    from first_of_priority
    cross join lateral (
        select jobs.id, jobs.priority, jobs.run_at
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority > first_of_priority.priority
        order by jobs.priority, jobs.run_at
        limit 1
    ) as following
    where first_of_priority.step < 100
)
select
    coalesce(tasks.identifier, '') as task_identifier,
    date_part('epoch', now()) - date_part('epoch', greatest(jobs.run_at, jobs.created_at)) as age
from first_of_priority
join :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs on jobs.id = first_of_priority.id
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = jobs.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as queues on queues.id = jobs.job_queue_id
where first_of_priority.run_at <= now() and queues.locked_at is null
order by greatest(jobs.run_at, jobs.created_at)
limit 1
