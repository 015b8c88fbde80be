-- write_outcomes for batches that leave something behind: kept jobs, and the errors of failed attempts. One
-- statement, so that a change and its history are committed together. A write that is repeated because its answer was lost
-- finds no job and inserts nothing. For arrays of one id see write_outcomes.
--
-- $1 to $9: see write_outcomes; $2 are the completed jobs that are not kept
-- failed jobs, in the order of $6:
-- $10 float8[]    seconds that the attempt took
-- $11 float8[]   seconds to keep it if the failure is permanent, or null
-- $12 boolean[]  whether to keep the payload with it
-- $13 float8[]   seconds to keep the error, or null
-- $14 text[]     types of the errors
-- $15 text[]     tracebacks
-- $16 text[]     fingerprints
-- $17 float8[]   when they were due, in seconds since 1970; the row has the time of the next attempt
-- completed jobs that are kept:
-- $18 bigint[]   job ids
-- $19 float8[]   seconds that the attempt took
-- $20 text[]     results (JSON text), or null
-- $21 float8     seconds to keep them
-- $22 boolean    whether to keep the payload
-- both:
-- $23 bigint[]   jobs that are announced
-- $24 text       version of the application
-- $25 text       name of the schema
-- redacted payloads to keep (JSON text), or null for those of the rows:
-- $26 text[]     of completed jobs, in the order of $18, or empty
-- $27 text[]     of failed jobs, in the order of $6
-- failed jobs again:
-- $28 text[]     as $10 of write_outcomes
-- $29 float8[]   as $11 of write_outcomes
-- $30 bigint[]   numbers of the attempts
-- completed jobs that are kept, again:
-- $31 text       completed or expired
-- Returns the same as write_outcomes; the deleted ids include those of $18.
with
:include completed
,
kept as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  using unnest($18::bigint[], $19::double precision[], $20::text[], $26::text[]) as ran (job_id, seconds, result, payload)
  where job.id = any (array[ran.job_id]) and (job.locked_by = $1::text or job.key is null)
  returning
    job.id, job.task_id, job.job_queue_id, job.key, job.priority, job.attempts, job.max_attempts, job.created_at,
    job.run_at, job.flags, case when $22::boolean then coalesce(ran.payload::json, job.payload) end as payload,
    ran.seconds, ran.result
),
failed as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
:include new_values
  from unnest(
    $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::double precision[], $11::double precision[], $12::boolean[],
    $13::double precision[], $14::text[], $15::text[], $16::text[], $17::double precision[], $27::text[], $28::text[],
    $29::double precision[], $30::bigint[]
  ) as failure (
    job_id, message, new_payload, own_max_attempts, seconds, keep_seconds, keep_payload, keep_error_seconds, error_type, traceback,
    fingerprint, due_at, redacted_payload, decision, delay, attempt
  )
  where job.id = any (array[failure.job_id]) and job.locked_by = $1::text
  returning job.*, failure.*
),
kept_end as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, started_at,
    finished_at, duration, pool_id, flags, payload, result, expires_on
  )
  select
    id, task_id, $31::text,
:include queue_name
    , key, priority, attempts, max_attempts, created_at, run_at, now() - interval '1 second' * seconds,
    now(), seconds, $1, flags, payload, result::json,
:include expires_on
  from (select kept.*, $21::double precision as keep_seconds, now() as kept_at from kept) job
),
failed_end as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, started_at,
    finished_at, duration, pool_id, flags, payload, error, expires_on
  )
  select
    id, task_id, 'failed',
:include queue_name
    , key, priority, attempt::smallint, max_attempts, created_at, to_timestamp(due_at), now() - interval '1 second' * seconds,
    now(), seconds, $1, flags, case when keep_payload then coalesce(redacted_payload::json, payload) end, message,
:include expires_on
  from (select failed.*, now() as kept_at from failed where not is_available and keep_seconds is not null) job
),
error as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_errors (
    job_id, attempt, task_id, failed_at, duration, is_final, error_type, message, traceback, fingerprint, pool_id,
    version, expires_on
  )
  select
    id, attempt::smallint, task_id, now(), seconds, not is_available, error_type, message, traceback, fingerprint, $1, $24::text,
:include expires_on
  from (
    select
      id, attempt, task_id, seconds, is_available, error_type, message, traceback, fingerprint,
      keep_error_seconds as keep_seconds, now() as kept_at
    from failed where keep_error_seconds is not null
  ) job
),
announced as materialized (
  select pg_notify(
    'worker:ended',
    pg_catalog.json_build_object(
      'schema', $25::text, 'ids', case when count(*) <= 300 then pg_catalog.json_agg(id) end
    )::text
  )
  from (
    select id from kept where id = any ($23::bigint[])
    union all
    select id from failed where not is_available and id = any ($23::bigint[])
  ) job
  where pg_catalog.cardinality($23::bigint[]) > 0
  having count(*) > 0
),
ended as (
  select job_queue_id from completed
  union all
  select job_queue_id from kept
  union all
  select job_queue_id from failed
),
:include take_next
select
:include taken_columns
  , (
    select case
      when count(*) < pg_catalog.cardinality($2::bigint[]) + pg_catalog.cardinality($18::bigint[]) then coalesce(pg_catalog.array_agg(id), '{}')
    end
    from (select id from completed union all select id from kept) deleted
  ) as completed
  , (select pg_catalog.array_agg(case when is_available then id else - id end) from failed) as failed
from (select) always left join taken on true left join announced on true
order by priority, run_at
