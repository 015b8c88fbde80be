-- Changes to all jobs that match a filter, in steps.

-- statement: bulk_bounds
-- What a bulk change must know before its first step.
-- $1 the name of the index over failed jobs with its schema, quoted.
-- Returns last_id (the highest id of all jobs, null without any) and has_failed_index.
select
    (select max(job.id) from :GRAPHILE_WORKER_SCHEMA._private_jobs as job) as last_id,
    pg_catalog.to_regclass($1::text) is not null as has_failed_index

-- statement: read_by_indexes
-- For the rest of the transaction: read the jobs table by its indexes only. Without statistics, as in a table that was
-- just filled, the planner would rather read and sort all jobs for each batch.
select
    pg_catalog.set_config('enable_seqscan', 'off', true),
    pg_catalog.set_config('enable_bitmapscan', 'off', true),
    pg_catalog.set_config('jit', 'off', true)

-- statement: bulk_count @failed @keyed
-- One step of a bulk change that is only a dry run: count matching jobs that it would change.
-- $1 to $29 as in `bulk_seen`, $30 whether it changes locked jobs too.
-- Returns `bulk_result` of the jobs that it would change, without ids; asked: how many are locked.
:include bulk_seen
changed as materialized (
    select
        null::bigint as id, seen.task_id, seen.is_available or seen.locked_at is not null as is_available,
        null::json as kept, coalesce(seen.locked_at >= now() - interval '4 hours', false) as is_asked
    from seen
    where seen.locked_at is null or $30::boolean
)
:include bulk_result

-- statement: bulk_look @failed @keyed
-- The next jobs that match a filter, locked or not, without changing them: examples for the dashboard.
-- $1 to $29 as in `bulk_seen`.
-- Returns `bulk_result`; asked: how many are locked.
:include bulk_seen
changed as materialized (
    select
        seen.id, seen.task_id, seen.is_available or seen.locked_at is not null as is_available, null::json as kept,
        coalesce(seen.locked_at >= now() - interval '4 hours', false) as is_asked
    from seen
)
:include bulk_result

-- statement: bulk_choose @failed @keyed
-- One step of an operation of the dashboard: lock matching jobs, which the same transaction then changes.
-- $1 to $29 as in `bulk_seen`, $30 whether to choose jobs that are locked by a worker too.
-- Returns `bulk_result` of the chosen jobs.
:include bulk_seen
changed as materialized (
    select
        job.id, job.task_id, job.is_available or job.locked_at is not null as is_available, null::json as kept,
        false as is_asked
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing
    where job.id = any (array(select seen.id from seen))
    and (job.locked_at is null or $30::boolean)
:include matching_jobs
    for update of job skip locked
)
:include bulk_result

-- statement: bulk_complete @failed @keyed
-- One step of a bulk change: delete matching jobs.
-- $1 to $29 as in `bulk_seen`.
-- Returns `bulk_result` of the deleted jobs.
:include bulk_seen
:include bulk_chosen
changed as materialized (
    select
        job.id, job.task_id, job.is_available, false as is_asked,
:include kept_job
    from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => array(select chosen.id from chosen)) as job
)
:include bulk_result

-- statement: bulk_fail @failed @keyed
-- One step of a bulk change: fail matching jobs permanently.
-- $1 to $29 as in `bulk_seen`, $30 the reason (null for the default).
-- Returns `bulk_result` of the failed jobs.
:include bulk_seen
:include bulk_chosen
changed as materialized (
    select
        job.id, job.task_id, job.is_available, false as is_asked,
:include kept_job
    from (
        select -- with the attempts that it had; now all are used
            failed.id, failed.payload, failed.priority, failed.run_at, chosen.attempts, failed.max_attempts,
            failed.last_error, failed.created_at, failed.updated_at, failed.key, failed.locked_at, failed.revision,
            failed.flags, failed.task_id, failed.job_queue_id, failed.locked_by, failed.is_available
        from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(
            job_ids => array(select chosen.id from chosen), error_message => $30::text
        ) as failed
        join chosen on chosen.id = failed.id
    ) as job
)
:include bulk_result

-- statement: bulk_reschedule @failed @keyed
-- One step of a bulk change: change run_at, priority and attempts of matching jobs; null leaves a value as it is.
-- $1 to $29 as in `bulk_seen`, $30 run_at, $31 delay from now in seconds (used when $30 is null), $32 priority,
-- $33 attempts, $34 max_attempts.
-- Returns `bulk_result` of the changed jobs; failed: how many are permanently failed after the change.
:include bulk_seen
:include bulk_chosen
rescheduled as materialized (
    select job.id, job.task_id, job.is_available, job.run_at
    from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
        job_ids => array(select chosen.id from chosen),
        run_at => coalesce($30::timestamptz, now() + pg_catalog.make_interval(secs => $31::float8)),
        priority => $32::integer,
        attempts => $33::integer,
        max_attempts => $34::integer
    ) as job
),
:include told_of_rescheduled
,
changed as materialized (
    select job.id, job.task_id, job.is_available, null::json as kept, false as is_asked
    from rescheduled as job
    left join told on true
)
:include bulk_result

-- statement: bulk_cancel @failed @keyed
-- One step of a bulk change: cancel matching jobs, running ones too; see cancel_jobs.
-- $1 to $29 as in `bulk_seen`, $30 the reason or null, $31 the name of the schema.
-- Returns `bulk_result` of the cancelled jobs; asked: how many of them are running.
:include bulk_seen
request (reason, schema_name) as materialized (select $30::text, $31::text),
found as materialized (
    select job.id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing
    where job.id = any (array(select seen.id from seen))
:include matching_jobs
    for update of job skip locked
),
removed as materialized (
    select
        job.id, job.task_id, job.is_available, job.locked_at,
:include kept_job
    from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => array(select found.id from found)) as job
),
:include cancel_running
,
changed as materialized (
    select
        removed.id, removed.task_id, removed.is_available or removed.locked_at is not null as is_available, removed.kept,
        false as is_asked
    from removed
    union all
    select detached.id, detached.task_id, true, null::json, true
    from detached left join told on true
)
:include bulk_result

-- part: bulk_seen
-- Part of every bulk statement: the next jobs by id that match the filter, locked or not. However few match, at most $29
-- jobs are read.
-- $1 how many jobs at most, $2 to $26 those of parts/matching_jobs, $27 the id after which to start, $28 the last id to
-- read, $29 how many jobs to read at most.
-- The variants `failed` and `keyed` walk along the indexes of failed jobs and of job keys instead of the primary key.
with seen as materialized (
    select job.id, job.task_id, job.locked_at, job.is_available
    from (
        select
            job.id, job.task_id, job.job_queue_id, job.key, job.locked_at, job.locked_by, job.flags, job.last_error,
            job.run_at, job.created_at, job.updated_at, job.attempts, job.is_available, job.priority, job.payload
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.id > $27::bigint -- with an upper bound as well, the planner may expect few rows and sort them
:include served
        order by job.id
        limit $29::integer
    ) as job
:include back_off
:include standing
    where job.id <= $28::bigint
:include matching_jobs
    order by job.id
    limit $1::integer
),
-- How far this step has read: to the last job seen if there may be more, else to the end of what it may read.
step as materialized (
    select
        case
            when (select count(*) from seen) >= $1::integer then (select max(seen.id) from seen)
            else coalesce((
                select job.id
                from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
                where job.id > $27::bigint -- with an upper bound as well, the planner may expect few rows and sort them
:include served
                order by job.id
                offset $29::integer - 1
                limit 1
            ), $28::bigint)
        end as last_id,
        (select count(*) from seen) as seen
),

-- part: bulk_chosen
-- Part of the bulk statements that change jobs: locks those of `seen` that still match and that no worker and no other
-- transaction has locked.
chosen as materialized (
    select job.id, job.attempts
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing
    where job.id = any (array(select seen.id from seen))
    and job.locked_at is null
:include matching_jobs
    for update of job skip locked
),

-- part: bulk_result
-- The answer of every bulk statement: last_id (where the next step starts), seen (matching jobs, locked or not), and for
-- each task with jobs in `changed` task_identifier, jobs, asked (0 but where a statement says more), failed (how many have
-- failed permanently), ids, and kept (those that are to be kept, an array of jobs as JSON text); one row of zeros if none.
select
    step.last_id,
    step.seen,
    coalesce(tasks.identifier, '') as task_identifier,
    coalesce(counted.jobs, 0) as jobs,
    coalesce(counted.asked, 0) as asked,
    coalesce(counted.failed, 0) as failed,
    counted.ids,
    counted.kept
from step
left join (
    select
        changed.task_id,
        count(*) as jobs,
        count(*) filter (where changed.is_asked) as asked,
        count(*) filter (where not changed.is_available) as failed,
        pg_catalog.array_agg(changed.id::text) filter (where changed.id is not null) as ids,
        (pg_catalog.json_agg(changed.kept) filter (where changed.kept is not null))::text as kept
    from changed
    group by changed.task_id
) as counted on true
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id

-- part: kept_job
    -- The columns of a job that asks to be kept, in the order of Job's fields, as JSON; null for other jobs.
    case when job.flags::text like '%"py:keep%' then (
        select pg_catalog.row_to_json(found)
        from (
            select
:include job_columns
:include task_identifier
        ) as found
    ) end as kept
