-- Move jobs that failed permanently a while ago to the history, some at a time. Most are there already.
--
-- $1 float8   seconds since the failure
-- $2 float8   seconds to keep it
-- $3 integer  at most this many
-- Returns how many were moved.
with old as materialized (
  select job.id
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where not job.is_available and job.locked_at is null
    and
:include failed_at
    < date_part('epoch', now()) - $1::double precision
  order by job.id
  limit $3::integer
  for update skip locked
),
moved as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  using old
  where job.id = old.id
  returning job.*
),
kept as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, finished_at, flags,
    error, expires_on
  )
  select
    id, task_id, 'failed',
:include queue_name
    , key, priority, attempts, max_attempts, created_at, run_at,
    to_timestamp(
:include failed_at
    )
    , flags, last_error,
:include expires_on
  from (select moved.*, $2::double precision as keep_seconds, now() as kept_at from moved) job
  where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_py_history known
    where known.job_id = job.id and known.state = 'failed'
  )
)
select count(*) from moved
