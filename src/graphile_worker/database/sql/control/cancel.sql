-- Cancelling jobs while they run.

-- statement: mark_cancelled
-- Note that jobs are cancelled, before they are ended as such.
--
-- $1 bigint[]  job ids
-- $2 text      the reason
insert into :GRAPHILE_WORKER_SCHEMA._private_py_cancels (job_id, reason)
select job.id, $2::text from pg_catalog.unnest($1::bigint[]) as job (id)
on conflict (job_id) do nothing

-- statement: lock_jobs
-- Wait until no statement is in flight that ends one of these jobs, and keep others from ending them.
--
-- $1 bigint[]  job ids
-- Returns the ids of those that are still locked by a pool.
select id
from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = any ($1::bigint[]) and locked_at is not null
order by id
for update

-- statement: left_jobs
-- Ready jobs that wait because their task or their queue is paused, for a worker that drains the queue. Scans the jobs
-- table.
--
-- $1 text[]       identifiers of the worker's tasks
-- $2 text[]       identifiers of paused tasks; empty for every task
-- $3 timestamptz  the current time, or null for the server's
-- Returns queue_name (null unless the queue is paused), task_identifier (null if it is) and jobs.
select
  pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name,
  case when queue.id is null then task.identifier end as task_identifier,
  count(*) as jobs
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  on queue.id = job.job_queue_id and queue.locked_by = 'py:hold'
where job.is_available and job.run_at <= coalesce($3::timestamptz, now())
  and task.identifier = any ($1::text[])
  and (queue.id is not null or '' = any ($2::text[]) or task.identifier = any ($2::text[]))
group by 1, 2
order by 1, 2

-- statement: limit_lock_waits
-- How long statements of this transaction wait for a lock.
--
-- $1 text  lock_timeout
-- Returns what it was before.
with earlier as materialized (select pg_catalog.current_setting('lock_timeout'::text) as lock_timeout)
select earlier.lock_timeout
from earlier
where pg_catalog.set_config('lock_timeout'::text, $1::text, true) is not null

-- statement: leftover_cancels
-- Jobs that were cancelled while a worker had them locked and that have ended otherwise since: they failed or were recovered
-- before their worker knew, or ran in another runtime. Forgets the cancels of jobs that are gone.
--
-- $1 integer  how many jobs at most
-- Returns the jobs' columns in the order of Job.
with forgotten as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel
  where not exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = cancel.job_id)
)
select
:include job_columns
:include task_identifier
from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel
join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = cancel.job_id
where job.locked_at is null
order by job.id
limit $1::integer

-- statement: end_cancelled
-- End cancelled jobs where there is no history; see `ended_cancelled`.
with
:include ended_cancelled
select id, reason from ended where $4::text is not null

-- statement: end_and_keep_cancelled
-- End cancelled jobs and keep them, in the order of $2 of `ended_cancelled`:
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

-- part: ended_cancelled
-- Part of the statements that end cancelled jobs: deletes those that the pool has locked, or that have ended otherwise while
-- they were cancelled, and their rows in _private_py_cancels.
--
-- $1 text      the pool that has locked the jobs, or null
-- $2 bigint[]  job ids
-- $3 text[]    reasons that the pool knows, or null
-- $4 text      name of the schema
-- Returns the ids of the jobs that were ended, and the reasons.
asked as materialized (
  select job_id, reason, asked_at from :GRAPHILE_WORKER_SCHEMA._private_py_cancels where job_id = any ($2::bigint[])
),
ended as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  using unnest($2::bigint[], $3::text[]) as wanted (job_id, reason) left join asked on asked.job_id = wanted.job_id
  where job.id = any (array[wanted.job_id]) -- see write_outcomes
    and (job.locked_by = $1::text or job.locked_at is null and asked.job_id is not null)
  returning job.*, coalesce(asked.reason, wanted.reason) as reason, asked.asked_at
),
forgotten as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel
  where cancel.job_id = any (array(select ended.id from ended))
),
-- Only of jobs that were locked: the queue of another one may run the next job by now.
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1::text
    and queue.id = any (array(select job_queue_id from ended where locked_by is not null and job_queue_id is not null))
)
