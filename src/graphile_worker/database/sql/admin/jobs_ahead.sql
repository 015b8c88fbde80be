-- Ready jobs that come before one, in the order in which workers take them, counted up to a bound.
-- $1 integer  its priority
-- $2 float8   its run_at, seconds since 1970
-- $3 bigint   its id
-- $4 integer  how many to count at most
-- Returns jobs, and same_task (how many of those that were counted have the task $5).
-- $5 integer  the id of its task
with recursive first_of_priority as (
    (
        select jobs.priority::integer as priority, 1 as step
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true and jobs.priority <= $1::integer
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.priority::integer, first_of_priority.step + 1
    from first_of_priority
    cross join lateral (
        select jobs.priority
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority > first_of_priority.priority and jobs.priority <= $1::integer
        order by jobs.priority, jobs.run_at
        limit 1
    ) as following
    where first_of_priority.step < 100
),
ahead as (
    select job.task_id
    from first_of_priority
    cross join lateral (
        select job.task_id
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available = true
        and (job.priority, job.run_at) >= (first_of_priority.priority, '-infinity'::timestamptz)
        and (job.priority, job.run_at) <= (first_of_priority.priority, now())
        and (job.priority, job.run_at, job.id) < ($1::integer, to_timestamp($2::float8), $3::bigint)
        order by job.priority, job.run_at
        limit $4::integer
    ) as job
    limit $4::integer
)
select count(*) as jobs, count(*) filter (where ahead.task_id = $5::integer) as same_task from ahead
