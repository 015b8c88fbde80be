-- The run_at of the job that has been ready the longest. Reads the first job of each priority (at most 100) from the
-- index of the fetch, so it touches few rows, however many jobs there are.
-- Returns its run_at in seconds since 1970, null when no job is ready.
with recursive first_of_priority as (
    (
        select jobs.priority, jobs.run_at, 1 as step
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.priority, following.run_at, first_of_priority.step + 1
    from first_of_priority
    cross join lateral (
        select jobs.priority, jobs.run_at
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority > first_of_priority.priority
        order by jobs.priority, jobs.run_at
        limit 1
    ) as following
    where first_of_priority.step < 100
)
select date_part('epoch', min(first_of_priority.run_at)) as run_at
from first_of_priority
where first_of_priority.run_at <= now()
