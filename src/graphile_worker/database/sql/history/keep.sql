-- What is kept of jobs: rows, partitions, progress.

-- statement: keep_recovered
-- Keep jobs that a sweep has failed permanently, and the error. In the transaction of the sweep.
--
-- $1 bigint[]  ids of recovered jobs; those that can run again are left out
-- $2 float8[]  seconds to keep each, or null
-- $3 float8    seconds to keep the errors, or null
-- $4 text      name of the schema
-- $5 bigint[]  attempts of each; its row says that all were used
with failed as (
  select
    job.*,
    ($2::double precision[])[pg_catalog.array_position($1::bigint[], job.id)] as end_seconds,
    ($5::bigint[])[pg_catalog.array_position($1::bigint[], job.id)]::smallint as attempt
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.id = any ($1::bigint[]) and not job.is_available and job.locked_at is null
),
failed_end as (
:include failed_rows
    , key, priority, attempt, max_attempts, created_at, run_at, now(), flags, last_error,
:include expires_on
  from (select failed.*, failed.end_seconds as keep_seconds, now() as kept_at from failed) job
  where keep_seconds is not null
),
error as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_errors (
    job_id, attempt, task_id, failed_at, is_final, error_type, message, fingerprint, expires_on
  )
  select
    id, attempt, task_id, now(), true, 'WorkerDied', last_error, 'worker-died',
:include expires_on
  from (select failed.*, $3::double precision as keep_seconds, now() as kept_at from failed) job
  where keep_seconds is not null
)
select pg_notify(
  'worker:ended', pg_catalog.json_build_object('schema', $4::text, 'ids', null)::text
)
from failed where flags is not null
limit 1

-- statement: keep_removed
-- Keep jobs that a client has removed or failed, and announce them. In the transaction of that change.
--
-- $1 text         how they ended
-- $2 text         name of the schema
-- $3 bigint[]     job ids
-- $4 integer[]    task ids
-- $5 integer[]    queue ids, or null
-- $6 text[]       job keys, or null
-- $7 integer[]    priorities
-- $8 integer[]    attempts
-- $9 integer[]    max_attempts
-- $10 float8[]    created_at, in seconds since 1970
-- $11 float8[]    run_at, in seconds since 1970
-- $12 text[]      flags (JSON text)
-- $13 text[]      payloads (JSON text), or null
-- $14 text[]      errors or reasons, or null
-- $15 float8[]    seconds to keep it
with removed as (
  select *
  from unnest(
    $3::bigint[], $4::integer[], $5::integer[], $6::text[], $7::integer[], $8::integer[], $9::integer[],
    $10::double precision[], $11::double precision[], $12::text[], $13::text[], $14::text[], $15::double precision[]
  ) as job (
    id, task_id, job_queue_id, key, priority, attempts, max_attempts, created_at, run_at, flags, payload, error,
    keep_seconds
  )
),
kept as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, finished_at, flags,
    payload, error, expires_on
  )
  select
    id, task_id, $1::text,
:include queue_name
    , key, priority::smallint, attempts::smallint, max_attempts::smallint, to_timestamp(created_at), to_timestamp(run_at),
    now(), flags::jsonb, payload::json, error,
:include expires_on
  from (select removed.*, now() as kept_at from removed) job
)
select pg_notify(
  'worker:ended',
  pg_catalog.json_build_object(
    'schema', $2::text, 'ids', case when count(*) <= 300 then pg_catalog.json_agg(id) end
  )::text
)
from removed

-- statement: move_failed
-- Move jobs that failed permanently a while ago to the history, some at a time. Most are there already.
--
-- $1 float8   seconds since the failure
-- $2 float8   seconds to keep it
-- $3 integer  at most this many
-- Returns how many were moved.
with old as materialized (
  select job.id
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
:include back_off
:include standing
  where not job.is_available and job.locked_at is null
    and standing.failed_at < date_part('epoch', now()) - $1::double precision
  order by job.id
  limit $3::integer
  for update of job skip locked
),
moved as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  using old
  where job.id = old.id
  returning job.*
),
kept as (
:include failed_rows
    , key, priority, attempts, max_attempts, created_at, run_at,
    to_timestamp(standing.failed_at), flags, last_error,
:include expires_on
  from (select moved.*, $2::double precision as keep_seconds, now() as kept_at from moved) job
:include back_off
:include standing
  where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_py_history known
    where known.job_id = job.id and known.state = 'failed'
  )
)
select count(*) from moved

-- statement: add_partitions
-- Make the partitions for what is kept from today until some days from now.
--
-- $1 text[]    tables, quoted
-- $2 float8[]  for each, seconds to keep rows; a table may occur several times
-- $3 integer   days ahead
-- Returns the number of partitions that were missing.
:include missing_partitions

-- statement: prepare_history
-- What add_partitions and name_tasks do, in one round trip.
--
-- $1 to $3   as in add_partitions
-- $4 text[]  task identifiers
-- Returns what add_partitions returns.
with named as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_task_names (id, identifier)
  select id, identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = any ($4::text[])
  on conflict (id) do nothing
)
:include missing_partitions

-- part: missing_partitions
select count(*) filter (
  where :GRAPHILE_WORKER_SCHEMA._private_py_add_partition(day.kept_in::regclass, day.day)
) as added
from (
  select distinct
    kept_in,
:include expires_on
    as day
  from (
    select kept.kept_in, kept.keep_seconds, now() + interval '1 day' * ahead.days::double precision as kept_at
    from unnest($1::text[], $2::double precision[]) as kept (kept_in, keep_seconds)
    cross join generate_series(0, $3::integer) as ahead (days)
  ) term
) day

-- statement: drop_partitions
-- Drop the partitions of a table whose rows have expired.
--
-- $1 text  the table, quoted
select :GRAPHILE_WORKER_SCHEMA._private_py_drop_partitions($1::text::regclass, (now() at time zone 'UTC')::date)

-- statement: write_progress
-- Store the progress of running jobs, and delete that of jobs that no longer run.
--
-- $1 bigint[]  ids of running jobs
-- $2 float8[]  their shares, or null
-- $3 text[]    their notes, or null
-- $4 text[]    their data (JSON text), or null
-- $5 bigint[]  ids of jobs that no longer run
with ended as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_progress where job_id = any ($5::bigint[])
)
insert into :GRAPHILE_WORKER_SCHEMA._private_py_progress (job_id, share, note, data, updated_at)
select job_id, share, note, data::json, now()
from unnest($1::bigint[], $2::double precision[], $3::text[], $4::text[]) as report (job_id, share, note, data)
order by job_id
on conflict (job_id) do update
set share = excluded.share, note = excluded.note, data = excluded.data, updated_at = excluded.updated_at

-- statement: get_progress
-- The progress of a job.
--
-- $1 bigint  job id
-- Returns share, note, data, updated_at.
select share, note, data::text, updated_at
from :GRAPHILE_WORKER_SCHEMA._private_py_progress where job_id = $1::bigint

-- statement: purge_progress
-- Delete the progress of jobs that dead workers left behind.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_progress progress
where progress.updated_at < now() - interval '1 minute'
  and not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = progress.job_id and job.locked_at is not null
  )

-- part: failed_rows
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, finished_at, flags,
    error, expires_on
  )
  select
    id, task_id, 'failed',
:include queue_name
