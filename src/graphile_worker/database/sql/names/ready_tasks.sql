-- Tasks that have ready jobs, from the first ready jobs of each priority (at most 100 priorities) in the index of the
-- fetch: what it reads does not depend on the number of jobs. Workers run jobs in that order, so the jobs that no worker
-- takes are soon the first ones.
--
-- $1 timestamptz  the time that counts as now, or null for the server's
-- $2 integer      how many jobs of each priority to read
-- Returns for each task: task_identifier; jobs; has_more (whether some jobs were not read); age (seconds since the oldest
-- could have run); in_locked_queues (jobs), and queue_name and locked_by of the oldest; and about the other jobs: free_age
-- (null if there are none), flagged (jobs with flags) and flags (their names).
with recursive
moment as materialized (select coalesce($1::timestamptz, now()) as at),
first_of_priority as (
    (
        select jobs.priority, 1 as step
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.priority, first_of_priority.step + 1
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
ready as materialized (
    select
        first_of_priority.priority,
        job.task_id,
        date_part('epoch', (select at from moment)) - date_part('epoch', greatest(job.run_at, job.created_at)) as age,
        job.flags,
        locked.queue_name as locked_queue,
        locked.locked_by
    from first_of_priority
    cross join lateral (
        select jobs.task_id, jobs.run_at, jobs.created_at, jobs.flags, jobs.job_queue_id
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        -- As a range, not `priority = ...`: the planner would rather sort all jobs of the priority.
        and (jobs.priority, jobs.run_at) >= (first_of_priority.priority, '-infinity'::timestamptz)
        and (jobs.priority, jobs.run_at) <= (first_of_priority.priority, (select at from moment))
        order by jobs.priority, jobs.run_at
        limit $2::integer
    ) as job
    left join lateral (
        select pg_catalog.regexp_replace(queues.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name, queues.locked_by
        from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queues
        where queues.id = job.job_queue_id and queues.locked_at is not null
        limit 1 -- one look per job, never a scan of all queues
    ) as locked on true
),
flag as (
    select named.task_id, pg_catalog.array_agg(distinct named.flag order by named.flag) as flags
    from (
        select ready.task_id, pg_catalog.jsonb_object_keys(ready.flags) as flag
        from ready
        where ready.locked_queue is null
    ) as named
    group by named.task_id
)
select
    coalesce(tasks.identifier, '') as task_identifier,
    counted.jobs,
    exists (select from ready group by ready.priority having count(*) >= $2::integer::bigint) as has_more,
    counted.age,
    counted.in_locked_queues,
    counted.queue_name,
    counted.locked_by,
    counted.free_age,
    counted.flagged,
    coalesce(flag.flags, '{}') as flags
from (
    select
        ready.task_id,
        count(*) as jobs,
        max(ready.age) as age,
        count(*) filter (where ready.locked_queue is not null) as in_locked_queues,
        (pg_catalog.array_agg(ready.locked_queue order by ready.age desc, ready.locked_queue)
            filter (where ready.locked_queue is not null))[1] as queue_name,
        (pg_catalog.array_agg(ready.locked_by order by ready.age desc, ready.locked_queue)
            filter (where ready.locked_queue is not null))[1] as locked_by,
        max(ready.age) filter (where ready.locked_queue is null) as free_age,
        count(*) filter (
            where ready.locked_queue is null and ready.flags is not null and ready.flags <> '{}'::jsonb
        ) as flagged
    from ready
    group by ready.task_id
) as counted
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id
left join flag on flag.task_id = counted.task_id
order by counted.age desc, task_identifier
