-- Adding jobs together.

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
    , (select installed.is_ours from installed) as is_ours
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

-- statement: announce_jobs
-- Wake workers, as add_jobs does: jobs are ready that are not new, so their run_at may be long ago. Workers with
-- watermarks read from the start.
--
-- $1 integer  how many
select pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || $1::integer::text || ',"freed":true}')

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
