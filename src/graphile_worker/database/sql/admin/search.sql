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

-- statement: find_in_run_order @ready @scheduled @queued
-- One step of a search for waiting jobs in the order in which workers take them. At most $30 jobs are read, of a queue with
-- tracks $30 in each.
-- $1 how many jobs at most, $2 to $26 those of parts/matching_jobs, $27, $28, $29 priority, run_at (seconds since
-- 1970) and id after which to start, $30 how many jobs to read at most, $31 the longest payload to return, in bytes.
-- The variants `ready` and `scheduled` read no jobs in the other state, and `queued` only those of the queues with the ids
-- $32, an integer[].
-- Returns last_id (of the last job that was read; null at the end), last_priority, last_run_at, and the columns of
-- `found_jobs`: one row with nulls if no job was found. Jobs with one run_at come in the order of the index, and are
-- sorted by id among those that were read.
with recursive
:include walked_jobs
,
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
    date_part('epoch', job.updated_at) as updated_at,
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

-- part: walked_jobs
walked as materialized (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.is_available = true
    and (job.priority, job.run_at, job.id) > ($27::integer, to_timestamp($28::float8), $29::bigint)
    order by job.priority, job.run_at
    limit $30::integer
)

-- part: walked_jobs@ready walked_jobs@scheduled
-- Priority by priority, each as a range, not `priority = ...`: the planner would rather sort all jobs of the priority.
beginning (priority) as (select $27::integer),
:include first_of_priority
,
walked as materialized (
    select found.*
    from first_of_priority
    cross join lateral (
        select job.*
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available = true
:include walked_range
        and (job.priority, job.run_at, job.id) > ($27::integer, to_timestamp($28::float8), $29::bigint)
        order by job.priority, job.run_at
        limit $30::integer
    ) as found
    limit $30::integer
)

-- part: walked_range
        and (job.priority, job.run_at) >= (
            first_of_priority.priority,
            case when first_of_priority.priority = $27::integer then to_timestamp($28::float8) else '-infinity'::timestamptz end
        )
        and (job.priority, job.run_at) <= (first_of_priority.priority, now())

-- part: walked_range@scheduled
        and (job.priority, job.run_at) >= (
            first_of_priority.priority,
            case when first_of_priority.priority = $27::integer then greatest(now(), to_timestamp($28::float8)) else now() end
        )
        and (job.priority, job.run_at) <= (first_of_priority.priority, 'infinity'::timestamptz)
        and job.run_at > now()

-- part: walked_jobs@queued
walked as materialized (
    select found.*
    from pg_catalog.unnest($32::integer[]) as wanted (id)
    cross join lateral (
        select job.*
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available = true and job.job_queue_id is not null
        and job.job_queue_id = any (array[wanted.id]) -- not an equality, which would make the order below redundant
        and (job.job_queue_id, job.priority, job.run_at) >= (wanted.id, $27::integer, to_timestamp($28::float8))
        and (job.priority, job.run_at, job.id) > ($27::integer, to_timestamp($28::float8), $29::bigint)
        -- The leading column leaves the planner no other index.
        order by job.job_queue_id, job.priority, job.run_at
        limit $30::integer
    ) as found
    order by found.priority, found.run_at
    limit $30::integer
)

-- statement: is_known_job
-- Whether a job is in the queue, was kept, or has errors that were kept.
-- $1 bigint  id
select
    exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs as job where job.id = $1::bigint)
    or exists (select from :GRAPHILE_WORKER_SCHEMA._private_py_history as history where history.job_id = $1::bigint)
    or exists (select from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error where error.job_id = $1::bigint)

-- statement: complete_workers
-- Pools whose id or host contains a text.
-- $1 text     the text
-- $2 integer  how many at most
-- Returns name.
select found.id as name
from (select workers.id, workers.host from :GRAPHILE_WORKER_SCHEMA._private_py_workers as workers limit 5000) as found
where pg_catalog.strpos(lower(found.id), lower($1::text)) > 0 or pg_catalog.strpos(lower(found.host), lower($1::text)) > 0
order by found.id
limit $2::integer

-- statement: complete_schedules
-- Recurring jobs whose identifier contains a text.
-- $1 text     the text
-- $2 integer  how many at most
-- Returns name.
select found.identifier as name
from (select known.identifier from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known limit 5000) as found
where pg_catalog.strpos(lower(found.identifier), lower($1::text)) > 0
order by found.identifier
limit $2::integer

-- statement: count_matching
-- How many jobs match a filter, however long that takes.
-- $1 bigint  how many to count at most, $2 to $26 those of parts/matching_jobs.
select count(*)
from (
    select job.id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing
    where true
:include matching_jobs
    limit $1::bigint
) as matching

-- statement: count_scheduled
-- Scheduled jobs, and those among the first of them that wait for another attempt, counted up to a bound.
-- $1 integer  how many to count at most, by the index of the fetch
-- $2 integer  of how many to read the attempts
-- Returns scheduled and retrying.
with recursive
beginning (priority) as (select (-32768)::smallint),
:include first_of_priority
select
    (
        select count(*)
        from (
            select later.run_at
            from first_of_priority
            cross join lateral (
                select job.run_at
:include later_jobs
                limit $1::integer
            ) as later
            limit $1::integer
        ) as found
    ) as scheduled,
    (
        select count(*) filter (where found.attempts > 0)
        from (
            select later.attempts
            from first_of_priority
            cross join lateral (
                select job.attempts
:include later_jobs
                limit $2::integer
            ) as later
            limit $2::integer
        ) as found
    ) as retrying

-- statement: count_retrying
-- Jobs that wait for another attempt, by a look at all: for a small table.
select count(*)
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.is_available and job.attempts > 0 and job.run_at > now()

-- part: later_jobs
                from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
                where job.is_available = true
                and (job.priority, job.run_at) >= (first_of_priority.priority, now())
                and (job.priority, job.run_at) <= (first_of_priority.priority, 'infinity'::timestamptz)
                and job.run_at > now()
                order by job.priority, job.run_at

-- statement: count_finished
-- Finished jobs that are kept, counted up to a bound.
-- $1 text     name of the schema
-- $2 integer  how many to count at most
-- Returns counted, and rows: what the server estimates.
select
    (
        select count(*)
        from (select history.job_id from :GRAPHILE_WORKER_SCHEMA._private_py_history as history limit $2::integer) as first
    ) as counted,
    (
        select coalesce(pg_catalog.sum(greatest(0::float8, class.reltuples::float8)), 0::float8)
        from pg_catalog.pg_class as parent
        join pg_catalog.pg_namespace as namespace on namespace.oid = parent.relnamespace
        join pg_catalog.pg_inherits as inherits on inherits.inhparent = parent.oid
        join pg_catalog.pg_class as class on class.oid = inherits.inhrelid
        where namespace.nspname = $1::text and parent.relname = '_private_py_history'::name
    ) as rows

-- statement: find_finished @task @outcome @task@outcome @ids
-- One step of a search for finished jobs, the latest first. About $4 of them are read: those that ended at the same instant
-- as the last of them are read, too.
-- $1 integer      how many jobs at most
-- $2 timestamptz  the earliest end, or null
-- $3 timestamptz  the latest end, or null
-- $4 integer      how many to read
-- $5 timestamptz  the end of the last job of the step before, or null
-- $6 bigint       its id
-- $7 text         how they ended, or null; `outcome` is for others than completed, which an index serves
-- $8, $9 bigint   the first and last id, or null; `ids` is for a small range
-- $10 text        the task identifier, in the variants `task`
-- $11 text        queue name, $12 job key, $13 the beginning of the key, $14 pool, or null
-- $15, $16 float8 the shortest and the longest duration in seconds, or null
-- $17 text        a part of the error, or null; $18 of the task identifier, the job key or the error
-- $19 integer     the longest payload to return, in bytes
-- Returns last_finished_at and last_id (where the next step begins; null at the end), and the jobs: one row with nulls if
-- none was found.
with wanted as materialized (
:include finished_tasks
),
bound as materialized (
    select max(last.finished_at) as finished_at
    from wanted
    cross join lateral (
        select history.finished_at
        from :GRAPHILE_WORKER_SCHEMA._private_py_history as history
        where
:include finished_range
:include of_task
:include of_outcome
        order by
:include by_task
:include by_outcome
        offset $4::integer - 1
        limit 1
    ) as last
),
walked as materialized (
    select
        history.job_id, coalesce(name.identifier, task.identifier, '') as task_identifier, history.state, history.queue_name,
        history.job_key, history.priority, history.attempts, history.max_attempts, history.created_at, history.run_at,
        history.started_at, history.finished_at, history.duration, history.pool_id, history.flags, history.payload,
        history.error
    from wanted
    cross join lateral (
        select history.*
        from :GRAPHILE_WORKER_SCHEMA._private_py_history as history
        where
:include finished_range
:include of_task
:include of_outcome
:include from_bound
    ) as history
    left join :GRAPHILE_WORKER_SCHEMA._private_py_task_names as name on name.id = history.task_id
    left join :GRAPHILE_WORKER_SCHEMA._private_tasks as task on task.id = history.task_id
),
seen as materialized (
    select walked.*
    from walked
    where ($7::text is null or walked.state = $7::text)
    and ($8::bigint is null or walked.job_id >= $8::bigint)
    and ($9::bigint is null or walked.job_id <= $9::bigint)
    and ($10::text is null or walked.task_identifier = $10::text)
    and ($11::text is null or walked.queue_name = $11::text)
    and ($12::text is null or walked.job_key = $12::text)
    and ($13::text is null or pg_catalog.starts_with(walked.job_key, $13::text))
    and ($14::text is null or walked.pool_id = $14::text)
    and ($15::float8 is null or walked.duration >= $15::float8)
    and ($16::float8 is null or walked.duration <= $16::float8)
    and ($17::text is null or pg_catalog.strpos(lower(walked.error), lower($17::text)) > 0)
    and (
        $18::text is null
        or pg_catalog.strpos(lower(walked.task_identifier), lower($18::text)) > 0
        or pg_catalog.strpos(lower(walked.job_key), lower($18::text)) > 0
        or pg_catalog.strpos(lower(walked.error), lower($18::text)) > 0
    )
    order by walked.finished_at desc, walked.job_id desc
    limit $1::integer
),
step as materialized (
    select reached.finished_at, reached.job_id
    from (
        (select seen.finished_at, seen.job_id from seen order by seen.finished_at desc, seen.job_id desc offset $1::integer - 1)
        union all
        (
            select bound.finished_at, (-9223372036854775808)::bigint
            from bound
            where (select count(*) from seen) < $1::integer and bound.finished_at is not null
        )
    ) as reached
    limit 1
)
select
    step.finished_at as last_finished_at,
    step.job_id as last_id,
    seen.job_id as id, seen.task_identifier, seen.state, seen.queue_name, seen.job_key as key, seen.priority, seen.attempts,
    seen.max_attempts, seen.created_at, seen.run_at, seen.started_at, seen.finished_at, seen.duration, seen.pool_id,
    seen.flags::text as flags,
    pg_catalog.left(seen.error, 4000) as last_error,
    case
        when $19::integer = 0 then null
        when pg_catalog.octet_length(seen.payload::text) <= $19::integer then seen.payload::text
    end as payload
from (select) as always
left join step on true
left join seen on true
order by seen.finished_at desc, seen.job_id desc

-- part: finished_tasks
    select null::integer as id

-- part: finished_tasks@task
    select named.id from :GRAPHILE_WORKER_SCHEMA._private_py_task_names as named where named.identifier = $10::text
    union
    select tasks.id from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks where tasks.identifier = $10::text

-- part: finished_range
        history.finished_at >= coalesce($2::timestamptz, '-infinity')
        and history.finished_at <= least(coalesce($3::timestamptz, 'infinity'), coalesce($5::timestamptz, 'infinity'))
        and ($5::timestamptz is null or (history.finished_at, history.job_id) < ($5::timestamptz, $6::bigint))

-- part: finished_range@ids
        -- Not the column, whose index would be read instead of that of ids.
        date_part('epoch', history.finished_at) >= coalesce(date_part('epoch', $2::timestamptz), '-infinity'::float8)
        and date_part('epoch', history.finished_at) <= coalesce(date_part('epoch', $3::timestamptz), 'infinity'::float8)
        and ($5::timestamptz is null or (history.finished_at, history.job_id) < ($5::timestamptz, $6::bigint))

-- part: from_bound
        and history.finished_at >= coalesce((select bound.finished_at from bound), '-infinity'::timestamptz)

-- part: from_bound@ids
        and (select bound.finished_at is null or bound.finished_at <= history.finished_at from bound)

-- part: of_task
-- In the variants, the conditions that an index serves. As lists, because an equality would make the order redundant.

-- part: of_task@task
        and history.task_id = any (array[wanted.id])

-- part: of_outcome
-- See `of_task`.

-- part: of_outcome@outcome
        and history.state <> 'completed' and history.state = any (array[$7::text])

-- part: of_outcome@ids
        and history.job_id >= $8::bigint and history.job_id <= $9::bigint

-- part: by_task
-- The leading columns leave the planner no other index.

-- part: by_task@task
        history.task_id desc,

-- part: by_outcome
        history.finished_at desc

-- part: by_outcome@outcome
        history.state desc, history.finished_at desc

-- part: by_outcome@ids
        date_part('epoch', history.finished_at) desc
