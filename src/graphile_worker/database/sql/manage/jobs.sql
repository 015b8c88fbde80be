-- Changes to jobs by their ids.

-- statement: remove_job
-- Delete the job with this key; a running job loses the key instead.
-- $1 job key.
-- Returns the job's columns in the order of Job; all null if no job has the key.
select
:include job_columns
:include task_identifier
from :GRAPHILE_WORKER_SCHEMA.remove_job(job_key => $1::text) as job

-- statement: cancel_jobs
-- Cancel jobs: delete those that are not running, and tell the workers of the others to end them. The rows are locked
-- first, so that no job can start or end in between.
-- $1 job ids as texts, $2 a job key or null, $3 the reason or null, $4 the name of the schema.
-- Returns the jobs' columns in the order of Job, as they were, then is_removed: false for a running job, whose worker is
-- told. Unknown ids are left out.
with request (reason, schema_name) as materialized (select $3::text, $4::text),
:include found_and_removed
,
:include cancel_running
select
:include job_columns
:include task_identifier
    , job.id in (select removed.id from removed) as is_removed
from found as job left join told on true
order by job.id

-- statement: cancel_waiting_jobs
-- cancel_jobs for roles that may not ask workers, and for databases without the table: delete jobs that are not running.
-- $1 job ids as texts, $2 a job key or null.
-- Returns the jobs' columns in the order of Job, deleted or not, then is_removed. Unknown ids are left out.
with
:include found_and_removed
select
:include job_columns
:include task_identifier
    , job.id in (select removed.id from removed) as is_removed
from found as job
order by job.id

-- statement: complete_jobs_by_hand
-- Delete jobs that are not locked, as if they had run.
-- $1 job ids as texts.
-- Returns the deleted jobs' columns in the order of Job.
select
:include job_columns
:include task_identifier
from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => $1::text[]::bigint[]) as job
order by job.id

-- statement: permanently_fail_jobs
-- Fail jobs permanently that are not locked.
-- $1 job ids as texts, $2 the reason (null for the default).
-- Returns the changed jobs' columns in the order of Job, then the attempts that each had.
with found as materialized (
    select job.id, job.attempts
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = any ($1::text[]::bigint[])
    order by job.id
    for update
)
select
:include job_columns
:include task_identifier
    , found.attempts as attempts_made
from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(
    job_ids => array(select found.id from found), error_message => $2::text
) as job
join found on found.id = job.id
order by job.id

-- statement: reschedule_jobs
-- Change run_at, priority and attempts of jobs that are not locked; null leaves a value as it is.
-- $1 job ids as texts, $2 run_at, $3 delay from now in seconds (used when $2 is null), $4 priority, $5 attempts, $6 max_attempts.
-- Returns the changed jobs' columns in the order of Job.
with rescheduled as materialized (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
        job_ids => $1::text[]::bigint[],
        run_at => coalesce($2::timestamptz, now() + pg_catalog.make_interval(secs => $3::float8)),
        priority => $4::integer,
        attempts => $5::integer,
        max_attempts => $6::integer
    ) as job
),
:include told_of_rescheduled
select
:include job_columns
:include task_identifier
from rescheduled as job
left join told on true
order by job.id

-- part: found_and_removed
-- Part of the statements that cancel jobs by their ids $1 or a key $2: all of them, as they were, and those that were deleted.
found as materialized (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = any (array(
        select named.id::bigint from pg_catalog.unnest($1::text[]) as named (id)
        union all
        select keyed.id from :GRAPHILE_WORKER_SCHEMA._private_jobs as keyed where keyed.key = $2::text
    ))
    order by job.id
    for update
),
removed as materialized (
    select job.id
    from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => array(select found.id from found)) as job
)

-- part: cancel_running
-- Part of the statements that cancel jobs: those of `found` that are not in `removed` are running. As with remove_job, they
-- lose their key and their attempts, so that no runtime runs them again. `request` has the reason and the schema's name.
detached as (
    update :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    set
        key = null,
        attempts = greatest(job.attempts, job.max_attempts),
        -- Later than the lock, however old this transaction is, and whatever clock the worker uses: see cut_off.
        updated_at = greatest(
            clock_timestamp(), job.locked_at + interval '1 microsecond', job.created_at + interval '1 microsecond'
        )
    from found
    where job.id = found.id and found.id <> all (array(select removed.id from removed))
    returning job.id, job.task_id
),
asked as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_cancels (job_id, reason)
    select detached.id, request.reason from detached cross join request
    on conflict (job_id) do nothing
),
told as materialized (
    select pg_notify('worker:py', pg_catalog.json_build_object('schema', request.schema_name)::text)
    from request
    where exists (select from detached)
)

-- part: told_of_rescheduled
-- Part of the statements that reschedule jobs: notifies workers of those in `rescheduled` that are ready (see announce_jobs).
told as materialized (
    select pg_notify(
        'jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*), 'freed', true)::text
    )
    from rescheduled
    where rescheduled.is_available and rescheduled.run_at <= now()
    having count(*) > 0
)
