-- End cancelled jobs and keep them, in the order of $2 of parts/ended_cancelled:
--
-- $5 float8[]   seconds to keep it, or null
-- $6 boolean[]  whether to keep the payload
-- $7 text[]     redacted payloads to keep (JSON text), or null for those of the rows
-- $8 float8[]   seconds that the attempt took; null for a job that did not start
-- $9 bigint[]   numbers of the attempts, or null: the row has all of them
-- $10 text[]    job keys, or null: the row has none
-- $11 text[]    pool ids, or null
-- $12 bigint[]  jobs that are announced
--
-- If the task has failed after the job was cancelled, that was kept. It becomes this one.
with
:include ended_cancelled
,
details as materialized (
  select *
  from unnest(
    $2::bigint[], $5::double precision[], $6::boolean[], $7::text[], $8::double precision[], $9::bigint[],
    $10::text[], $11::text[]
  ) as details (job_id, keep_seconds, keep_payload, redacted_payload, seconds, attempt, own_key, pool_id)
),
-- A session plans this once, maybe while the history is empty. A join would then read all failed ones for every job, and
-- `is true` keeps the planner from an index over states: what is left is to look up each job by its id.
known as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_history history
  set
    state = 'cancelled',
    error = (select ended.reason from ended where ended.id = history.job_id),
    job_key = coalesce(
      history.job_key, (select details.own_key from details where details.job_id = history.job_id limit 1)
    )
  where history.job_id = any (array(select ended.id from ended))
    and (history.state = 'failed') is true
    and history.finished_at >= (select ended.asked_at from ended where ended.id = history.job_id)
  returning history.job_id
),
kept as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, started_at,
    finished_at, duration, pool_id, flags, payload, error, expires_on
  )
  select
    id, task_id, 'cancelled',
:include queue_name
    , coalesce(own_key, key), priority, coalesce(attempt::smallint, attempts), max_attempts, created_at, run_at,
    now() - interval '1 second' * seconds, now(), seconds, pool_id, flags,
    case when keep_payload then coalesce(redacted_payload::json, payload) end, reason,
:include expires_on
  from (
    select ended.*, details.*, now() as kept_at
    from details join ended on ended.id = details.job_id
    where details.keep_seconds is not null and ended.id <> all (array(select known.job_id from known))
  ) job
),
announced as materialized (
  select pg_notify(
    'worker:ended',
    pg_catalog.json_build_object(
      'schema', $4::text, 'ids', case when count(*) <= 300 then pg_catalog.json_agg(id) end
    )::text
  )
  from ended where id = any ($12::bigint[]) having count(*) > 0
)
select id, reason from ended left join announced on true
