-- One step of a search for waiting jobs in the order in which workers take them. At most $15 jobs are read.
-- $1 how many jobs at most, $2 to $11 the conditions of parts/matching_jobs, $12, $13, $14 priority, run_at (seconds since
-- 1970) and id after which to start, $15 how many jobs to read at most, $16 the longest payload to return, in bytes.
-- The line ":conditions" is replaced by further conditions.
-- Returns last_id (of the last job that was read; null at the end), last_priority, last_run_at, and the columns of
-- parts/found_jobs: one row with nulls if no job was found. Jobs with one run_at come in the order of the index, and are
-- sorted by id among those that were read.
with walked as materialized (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.is_available = true
    and (job.priority, job.run_at, job.id) > ($12::integer, to_timestamp($13::float8), $14::bigint)
    order by job.priority, job.run_at
    limit $15::integer
),
seen as materialized (
    select job.*
    from walked as job
    where true
:include matching_jobs
-- :conditions
    order by job.priority, job.run_at, job.id
    limit $1::integer
),
step as materialized (
    select job.id as last_id, job.priority as last_priority, job.run_at as last_run_at
    from (
        (select seen.id, seen.priority, seen.run_at from seen offset $1::integer - 1)
        union all
        (
            select walked.id, walked.priority, walked.run_at
            from walked
            where (select count(*) from seen) < $1::integer and (select count(*) from walked) >= $15::integer
            order by walked.priority desc, walked.run_at desc, walked.id desc
            limit 1
        )
    ) as job
    limit 1
)
select
    step.last_id,
    step.last_priority,
    date_part('epoch', step.last_run_at) as last_run_at,
:include found_jobs
    case
        when $16::integer = 0 then null
        when pg_catalog.octet_length(job.payload::text) <= $16::integer then job.payload::text
    end as payload
from (select) as always
left join step on true
left join seen as job on true
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
order by job.priority, job.run_at, job.id
