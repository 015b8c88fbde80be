-- Keep jobs that a sweep has failed permanently, and the error. In the transaction of the sweep.
--
-- $1 bigint[]  ids of recovered jobs; those that can run again are left out
-- $2 float8[]  seconds to keep each, or null
-- $3 float8    seconds to keep the errors, or null
-- $4 text      name of the schema
with failed as (
  select
    job.*,
    ($2::double precision[])[pg_catalog.array_position($1::bigint[], job.id)] as end_seconds
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.id = any ($1::bigint[]) and not job.is_available and job.locked_at is null
),
failed_end as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, finished_at, flags,
    error, expires_on
  )
  select
    id, task_id, 'failed',
:include queue_name
    , key, priority, attempts, max_attempts, created_at, run_at, now(), flags, last_error,
:include expires_on
  from (select failed.*, failed.end_seconds as keep_seconds, now() as kept_at from failed) job
  where keep_seconds is not null
),
error as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_errors (
    job_id, attempt, task_id, failed_at, is_final, error_type, message, fingerprint, expires_on
  )
  select
    id, attempts, task_id, now(), true, 'WorkerDied', last_error, 'worker-died',
:include expires_on
  from (select failed.*, $3::double precision as keep_seconds, now() as kept_at from failed) job
  where keep_seconds is not null
)
select pg_notify(
  'worker:ended', pg_catalog.json_build_object('schema', $4::text, 'ids', null)::text
)
from failed where flags is not null
limit 1
