-- statement: add_job
-- Add one job with a key, or update the one with the same key.
-- $1 task identifier, $2 payload as JSON text, $3 queue name, $4 run_at, $5 delay from now in seconds (used
-- when $4 is null), $6 max_attempts, $7 job key, $8 priority, $9 flags, $10 job key mode.
-- Returns the job's columns in the order of Job, without the task identifier. All columns are null if the add got
-- lost, which happens on a schema that Node installed.
select
    job.id,
    job.payload::text as payload,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    job.last_error,
    date_part('epoch', job.created_at) as created_at,
    date_part('epoch', job.updated_at) as updated_at,
    job.key,
    date_part('epoch', job.locked_at) as locked_at,
    job.revision,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id,
    job.locked_by
from :GRAPHILE_WORKER_SCHEMA.add_job(
    identifier => $1::text,
    payload => $2::text::json,
    queue_name => $3::text,
    run_at => coalesce($4::timestamptz, now() + pg_catalog.make_interval(secs => $5::float8)),
    max_attempts => $6::integer,
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
from :GRAPHILE_WORKER_SCHEMA.add_job(
    identifier => $1::text,
    payload => $2::text::json,
    queue_name => $3::text,
    run_at => coalesce($4::timestamptz, now() + pg_catalog.make_interval(secs => $5::float8)),
    max_attempts => $6::integer,
    priority => $7::integer,
    flags => $8::text[]
) as job

-- statement: add_jobs
-- Add many jobs, with any options.
-- $1 to $9 columns of the specs as arrays of texts of equal length, or empty if no spec has a value: task
-- identifiers, payloads, queue names, run_at, delays from now in seconds (used where run_at is null), max_attempts,
-- job keys, priorities, flags (each the text of an array); $10 whether a waiting job with the same key keeps its
-- run_at; $11 the signature of add_jobs, $12 the md5 of the body that this package installs.
-- Returns the jobs' columns in the order of Job, without the task identifier, and is_ours: whether the function is
-- ours, and so returns jobs in the order of the specs.
with installed as materialized (
    select exists (
        select from pg_catalog.pg_proc
        where pg_proc.oid = pg_catalog.to_regprocedure($11::text)::oid
        and md5(pg_proc.prosrc) = $12::text
    ) as is_ours
)
select
:include job_columns
    (select installed.is_ours from installed) as is_ours
from :GRAPHILE_WORKER_SCHEMA.add_jobs(
    specs => array(
        select
            cast(row(
                spec.identifier,
                spec.payload::json,
                spec.queue_name,
                coalesce(spec.run_at::timestamptz, now() + pg_catalog.make_interval(secs => spec.delay::float8)),
                spec.max_attempts::smallint,
                spec.job_key,
                spec.priority::smallint,
                spec.flags::text[]
            ) as :GRAPHILE_WORKER_SCHEMA.job_spec)
        from unnest(
            $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]
        ) with ordinality as spec
            (identifier, payload, queue_name, run_at, delay, max_attempts, job_key, priority, flags, place)
        order by spec.place
    ),
    job_key_preserve_run_at => $10::boolean
) as job

-- statement: add_jobs_without_keys
-- Add many jobs that have neither keys nor flags. The result is one row of lists, which is far cheaper to send and to
-- decode than a row per job, and holds only what the caller cannot know.
-- $1 to $7 columns of the specs as arrays of texts of equal length, or empty if no spec has a value: task
-- identifiers (one is enough if all are the same), payloads, queue names, run_at, delays from now in seconds (used
-- where run_at is null), max_attempts, priorities; $8 the signature of add_jobs, $9 the md5 of the body that this
-- package installs.
-- Returns is_ours (whether the function is ours, and so returns jobs in the order of the specs), ids, created_at,
-- task_id (any one), task_ids, job_queue_ids, run_at, max_attempts, priorities, all these lists as JSON text, and
-- payloads; a list is null if it is not needed.
with installed as materialized (
    select exists (
        select from pg_catalog.pg_proc
        where pg_proc.oid = pg_catalog.to_regprocedure($8::text)::oid
        and md5(pg_proc.prosrc) = $9::text
    ) as is_ours
)
select
    (select installed.is_ours from installed) as is_ours,
    pg_catalog.json_agg(job.id)::text as ids,
    date_part('epoch', now()) as created_at,
    min(job.task_id) as task_id,
    (pg_catalog.json_agg(job.task_id) filter (where pg_catalog.cardinality($1::text[]) > 1))::text as task_ids,
    (
        pg_catalog.json_agg(job.job_queue_id) filter (where pg_catalog.cardinality($3::text[]) > 0)
    )::text as job_queue_ids,
    (pg_catalog.json_agg(date_part('epoch', job.run_at)) filter (
        where pg_catalog.cardinality($4::text[]) > 0 or pg_catalog.cardinality($5::text[]) > 0
    ))::text as run_at,
    (pg_catalog.json_agg(job.max_attempts) filter (where pg_catalog.cardinality($6::text[]) > 0))::text as max_attempts,
    (pg_catalog.json_agg(job.priority) filter (where pg_catalog.cardinality($7::text[]) > 0))::text as priorities,
    pg_catalog.array_agg(job.payload::text) filter (where not (select installed.is_ours from installed)) as payloads
from :GRAPHILE_WORKER_SCHEMA.add_jobs(
    specs => array(
        select
            cast(row(
                coalesce(spec.identifier, ($1::text[])[1]),
                spec.payload::json,
                spec.queue_name,
                coalesce(spec.run_at::timestamptz, now() + pg_catalog.make_interval(secs => spec.delay::float8)),
                spec.max_attempts::smallint,
                null,
                spec.priority::smallint,
                null
            ) as :GRAPHILE_WORKER_SCHEMA.job_spec)
        from unnest(
            $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]
        ) with ordinality as spec
            (identifier, payload, queue_name, run_at, delay, max_attempts, priority, place)
        order by spec.place
    )
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

-- statement: add_unique_jobs
-- Add many jobs that are unique by their arguments, unless there are such jobs. Specs with the same key get the same job.
-- $1 to $9: see add_jobs, every spec with a key; $10 while which a job with the key counts.
-- Returns the jobs' columns in the order of Job, without the task identifier, and whether each is new. In the order of the
-- keys the calls wait for others that add the same jobs, and do not deadlock.
with spec as materialized (
    select *
    from unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]
    ) with ordinality as spec
        (identifier, payload, queue_name, run_at, delay, max_attempts, job_key, priority, flags, place)
    order by 7, 10
),
added as materialized (
    select spec.place, done.job, done.is_new
    from spec
    cross join lateral :GRAPHILE_WORKER_SCHEMA._private_py_add_unique_job(
        spec.identifier,
        spec.payload::json,
        spec.queue_name,
        coalesce(spec.run_at::timestamptz, now() + pg_catalog.make_interval(secs => spec.delay::float8)),
        spec.max_attempts::integer,
        spec.job_key,
        spec.priority::integer,
        spec.flags::text[],
        $10::text,
        false
    ) as done
),
announced as materialized (
    select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || count(*)::text || '}')
    from added
    where added.is_new
    having count(*) > 0
)
select
:include unique_job_columns
from added
left join announced on true
order by added.place

-- statement: announce_job
-- Notify workers of one job that has been committed, as add_job does.
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}')

-- statement: announce_jobs
-- Wake workers, as add_jobs does: jobs are ready that are not new, so their run_at may be long ago. Workers with
-- watermarks read from the start.
--
-- $1 integer  how many
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || $1::integer::text || ',"freed":true}')

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

-- statement: insert_jobs
-- Add many jobs of one task that have a payload and nothing else, with the effect of add_jobs on such specs.
--
-- The function takes an array of composite values; building and unpacking it is a quarter of the work.
--
-- $1 text    task identifier
-- $2 text[]  payloads as JSON text
-- Returns one row: ids in the order of the payloads (JSON text), created_at, task_id. The ids are null, and
-- nothing is added, if the task has no row yet.
with
task as materialized (
  select id from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = $1::text
),
notified as materialized (
  select pg_notify(
    'jobs:insert', '{"r":' || random()::text || ',"count":' || pg_catalog.cardinality($2::text[])::text || '}'
  )
  from task
),
added as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_jobs (task_id, payload)
  select (select id from task), payload::json
  from notified cross join pg_catalog.unnest($2::text[]) as spec (payload)
  returning id
)
select pg_catalog.json_agg(id)::text as ids, date_part('epoch', now()) as created_at, (select id from task) as task_id
from added

-- statement: task_identifiers
-- Task identifiers by id.
-- $1 task ids as texts.
-- Returns id and identifier of those that exist.
select tasks.id, tasks.identifier
from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
where tasks.id = any($1::text[]::integer[])

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
