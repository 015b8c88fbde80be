-- Ready jobs in the order in which workers take them, priority by priority; scheduled ones in the variant of that name.
-- Jobs in the other state are not read.
-- $1 how many jobs at most, $2, $3, $4 priority, run_at (seconds since 1970) and id after which to start, $5 how many jobs
-- of each priority to read at most, $6 the longest payload to return, in bytes.
-- Returns the columns of parts/found_jobs. Jobs with one run_at are sorted by id among those that were read.
with recursive first_of_priority as (
    (
        select jobs.priority::integer as priority, 1 as step
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true and jobs.priority >= $2::integer
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.priority::integer, first_of_priority.step + 1
    from first_of_priority
    cross join lateral (
        select jobs.priority
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true and jobs.priority > first_of_priority.priority
        order by jobs.priority, jobs.run_at
        limit 1
    ) as following
    where first_of_priority.step < 100
),
seen as materialized (
    select found.*
    from first_of_priority
    cross join lateral (
        select job.*
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available = true
        -- As a range, not `priority = ...`: the planner would rather sort all jobs of the priority.
:include run_at_ready
        and (job.priority, job.run_at, job.id) > ($2::integer, to_timestamp($3::float8), $4::bigint)
        order by job.priority, job.run_at
        limit $5::integer
    ) as found
    order by found.priority, found.run_at, found.id
    limit $1::integer
)
select
:include found_jobs
    case
        when $6::integer = 0 then null
        when pg_catalog.octet_length(job.payload::text) <= $6::integer then job.payload::text
    end as payload
from seen as job
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
order by job.priority, job.run_at, job.id
