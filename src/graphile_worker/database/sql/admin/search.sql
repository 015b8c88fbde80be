-- Lists of jobs: by a filter, in run order, and how many there are.

-- statement: find_by_id @upwards @failed @keyed @upwards@failed @upwards@keyed
-- One step of a search for jobs by descending id; by ascending id in the variant `upwards`. However few match, at most $28
-- jobs are read.
-- $1 how many jobs at most, $2 to $26 those of parts/matching_jobs, $27 the id after which to start,
-- $28 how many jobs to read at most, $29 the longest payload to return, in bytes.
-- The variants `failed` and `keyed` walk along the indexes of failed jobs and of job keys instead of the primary key.
-- Returns last_id (how far it has read; null at the end of the table), and the columns of `found_jobs`: one row with
-- nulls if no job was found.
with seen as materialized (
    select job.*
    from (
        select job.*
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where
:include next_id
:include served
        order by
:include id_order
        limit $28::integer
    ) as job
:include back_off
:include standing
    where true
:include matching_jobs
    order by
:include id_order
    limit $1::integer
),
step as materialized (
    select
        case
            when (select count(*) from seen) >= $1::integer then (
:include last_seen_id
            )
            else (
                select job.id
                from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
                where
:include next_id
:include served
                order by
:include id_order
                offset $28::integer - 1
                limit 1
            )
        end as last_id
)
select
    step.last_id,
:include found_jobs
    case
        when $29::integer = 0 then null
        when pg_catalog.octet_length(job.payload::text) <= $29::integer then job.payload::text
    end as payload
from step
left join seen as job on true
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
:include back_off
:include standing
order by
:include id_order

-- statement: find_in_run_order
-- One step of a search for waiting jobs in the order in which workers take them. At most $30 jobs are read.
-- $1 how many jobs at most, $2 to $26 those of parts/matching_jobs, $27, $28, $29 priority, run_at (seconds since
-- 1970) and id after which to start, $30 how many jobs to read at most, $31 the longest payload to return, in bytes.
-- Returns last_id (of the last job that was read; null at the end), last_priority, last_run_at, and the columns of
-- `found_jobs`: one row with nulls if no job was found. Jobs with one run_at come in the order of the index, and are
-- sorted by id among those that were read.
with walked as materialized (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.is_available = true
    and (job.priority, job.run_at, job.id) > ($27::integer, to_timestamp($28::float8), $29::bigint)
    order by job.priority, job.run_at
    limit $30::integer
),
seen as materialized (
    select job.*
    from walked as job
:include back_off
:include standing
    where true
:include matching_jobs
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
            where (select count(*) from seen) < $1::integer and (select count(*) from walked) >= $30::integer
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
        when $31::integer = 0 then null
        when pg_catalog.octet_length(job.payload::text) <= $31::integer then job.payload::text
    end as payload
from (select) as always
left join step on true
left join seen as job on true
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
:include back_off
:include standing
order by job.priority, job.run_at, job.id

-- statement: find_waiting @scheduled
-- Ready jobs in the order in which workers take them, priority by priority; scheduled ones in the variant of that name.
-- Jobs in the other state are not read.
-- $1 how many jobs at most, $2, $3, $4 priority, run_at (seconds since 1970) and id after which to start, $5 how many jobs
-- of each priority to read at most, $6 the longest payload to return, in bytes.
-- Returns the columns of `found_jobs`. Jobs with one run_at are sorted by id among those that were read.
with recursive
beginning (priority) as (select $2::integer),
:include first_of_priority
,
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
:include back_off
:include standing
order by job.priority, job.run_at, job.id

-- statement: find_these
-- Jobs by their ids, the newest first.
-- $1 bigint[]  ids
-- $2 integer   the longest payload to return, in bytes
-- Returns the columns of `found_jobs`.
select
:include found_jobs
    case
        when $2::integer = 0 then null
        when pg_catalog.octet_length(job.payload::text) <= $2::integer then job.payload::text
    end as payload
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
:include back_off
:include standing
where job.id = any ($1::bigint[])
order by job.id desc

-- part: found_jobs
-- The columns of a job in a list of the dashboard, for rows of `job`; needs `standing`. The last parameter of the statement is
-- the longest payload to return, in bytes.
    job.id,
    coalesce(tasks.identifier, '') as task,
    pg_catalog.regexp_replace(job_queues.queue_name, ' \[[1-9][0-9]*\]$', '') as queue,
    standing.state,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    pg_catalog.left(job.last_error, 4000) as last_error,
    date_part('epoch', job.created_at) as created_at,
    job.key,
    job.flags::text as flags,
    job.revision,
    job.locked_by,
    date_part('epoch', job.locked_at) as locked_at,
    standing.failed_at,
    job_queues.locked_by as queue_locked_by,

-- part: next_id
        job.id < $27::bigint

-- part: next_id@upwards
        job.id > $27::bigint

-- part: id_order
        job.id desc

-- part: id_order@upwards
        job.id

-- part: last_seen_id
                select min(seen.id) from seen

-- part: last_seen_id@upwards
                select max(seen.id) from seen

-- part: run_at_ready
        and (job.priority, job.run_at) >= (
            first_of_priority.priority,
            case when first_of_priority.priority = $2::integer then to_timestamp($3::float8) else '-infinity'::timestamptz end
        )
        and (job.priority, job.run_at) <= (first_of_priority.priority, now())

-- part: run_at_ready@scheduled
        and (job.priority, job.run_at) >= (
            first_of_priority.priority,
            case when first_of_priority.priority = $2::integer then greatest(now(), to_timestamp($3::float8)) else now() end
        )
        and (job.priority, job.run_at) <= (first_of_priority.priority, 'infinity'::timestamptz)
        and job.run_at > now()
