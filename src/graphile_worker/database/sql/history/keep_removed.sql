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
