-- Adding one job.

-- statement: add_job
-- Add one job with a key, or update the one with the same key.
-- $1 task identifier, $2 payload as JSON text, $3 queue name, $4 run_at, $5 delay from now in seconds (used
-- when $4 is null), $6 max_attempts, $7 job key, $8 priority, $9 flags, $10 job key mode.
-- Returns the job's columns in the order of Job, without the task identifier. All columns are null if the add got
-- lost, which happens on a schema that Node installed.
select
:include job_columns
:include added_by_function
    job_key => $7::text,
    priority => $8::integer,
    flags => $9::text[],
    job_key_mode => $10::text
) as job

-- statement: add_job_without_key
-- Add one job that has no key. Returns only what the client cannot know: drivers and libraries do some work for each
-- column of a result.
-- $1 task identifier, $2 payload as JSON text, $3 queue name, $4 run_at, $5 delay from now in seconds (used
-- when $4 is null), $6 max_attempts, $7 priority, $8 flags.
-- Returns id, run_at, created_at, flags, task_id, job_queue_id.
select
    job.id,
    date_part('epoch', job.run_at) as run_at,
    date_part('epoch', job.created_at) as created_at,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id
:include added_by_function
    priority => $7::integer,
    flags => $8::text[]
) as job

-- statement: add_plain_job
-- Add one job that has neither key nor queue; only outside a transaction, because the procedure may commit it.
-- $1 task identifier, $2 payload as JSON text, $3 run_at, $4 delay from now in seconds (used when $3 is null),
-- $5 max_attempts, $6 priority, $7 flags.
-- Returns one row: id (null, and nothing added, if the task has no row yet), flags, run_at, created_at, task_id.
call :GRAPHILE_WORKER_SCHEMA._private_py_add_plain_job(
    $1::text,
    $2::text::json,
    coalesce($3::timestamptz, now() + pg_catalog.make_interval(secs => $4::float8)),
    $5::integer,
    $6::integer,
    $7::text[],
    null,
    null,
    null,
    null,
    null
)

-- statement: insert_job
-- Add one job that has neither key nor queue, and notify workers, unless another client is about to notify, too:
-- PostgreSQL commits only one notifying transaction at a time. Only outside a transaction, which would keep the lock.
-- $1 task identifier, $2 payload as JSON text, $3 run_at, $4 delay from now in seconds (used when $3 is null),
-- $5 max_attempts, $6 priority, $7 flags as JSON text, each a key whose value is true.
-- Returns id, flags, run_at, created_at, task_id, and whether workers were notified; no row, and nothing is added, if
-- the task has no row yet.
with added as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_jobs (task_id, payload, run_at, max_attempts, priority, flags)
    select
        tasks.id,
        $2::text::json,
        coalesce($3::timestamptz, now() + pg_catalog.make_interval(secs => $4::float8), now()),
        coalesce($5::integer::smallint, 25::smallint),
        coalesce($6::integer::smallint, 0::smallint),
        $7::text::jsonb
    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    where tasks.identifier = $1::text
    returning id, flags, run_at, created_at, task_id
)
select
    id,
    flags::text,
    date_part('epoch', run_at),
    date_part('epoch', created_at),
    task_id,
    case
        when pg_try_advisory_xact_lock(7231964501297834)
            then pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}')::text is not null
        else false
    end
from added

-- statement: add_unique_job
-- Add one job that is unique by its arguments, unless there is one.
-- $1 to $9: see add_job; $10 while which a job with the key counts: "waiting" or "waiting or running".
-- Returns the columns of the new or the existing job as add_job does, and whether it is new.
select
:include unique_job_columns
from :GRAPHILE_WORKER_SCHEMA._private_py_add_unique_job(
    $1::text,
    $2::text::json,
    $3::text,
    coalesce($4::timestamptz, now() + pg_catalog.make_interval(secs => $5::float8)),
    $6::integer,
    $7::text,
    $8::integer,
    $9::text[],
    $10::text,
    true
) as added

-- statement: announce_job
-- Notify workers of one job that has been committed, as add_job does.
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}')

-- part: unique_job_columns
    -- The columns of a job that _private_py_add_unique_job returned, in the order of Job's fields, and whether it is new.
    (added.job).id,
    (added.job).payload::text as payload,
    (added.job).priority,
    date_part('epoch', (added.job).run_at) as run_at,
    (added.job).attempts,
    (added.job).max_attempts,
    (added.job).last_error,
    date_part('epoch', (added.job).created_at) as created_at,
    date_part('epoch', (added.job).updated_at) as updated_at,
    (added.job).key,
    date_part('epoch', (added.job).locked_at) as locked_at,
    (added.job).revision,
    (added.job).flags::text as flags,
    (added.job).task_id,
    (added.job).job_queue_id,
    (added.job).locked_by,
    added.is_new

-- part: added_by_function
from :GRAPHILE_WORKER_SCHEMA.add_job(
    identifier => $1::text,
    payload => $2::text::json,
    queue_name => $3::text,
    run_at => coalesce($4::timestamptz, now() + pg_catalog.make_interval(secs => $5::float8)),
    max_attempts => $6::integer,
