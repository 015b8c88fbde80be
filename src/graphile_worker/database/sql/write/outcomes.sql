-- Failed and returned jobs, and mixed batches.

-- statement: write_outcomes @wide @routed @wide@routed
-- Write any mix of completed and failed jobs, unlock their named queues or lock the next job of each.
--
-- $1 text         pool id
-- $2 bigint[]     ids of completed jobs; they are deleted
-- $3 text         ids of the tasks this pool can run, as an array literal such as {1,2}; null: take no next job
-- $4 text[]       rules for flags, or null: see `flag_rules`
-- $5 timestamptz  the current time for the choice of the next job, or null for the server's
-- $6 bigint[]     ids of failed and snoozed jobs; they are kept
-- $7 text[]       their error messages
-- $8 text[]       their new payloads (JSON text), null to keep the old one
-- $9 bigint[]     their max_attempts, which replace the default of 25: options of a task that the add did not know
-- $10 text[]      give_up: the job fails permanently; snooze: it runs again and the attempt does not count; null: it is
--                 retried while attempts are left
-- $11 float8[]    seconds until they run again, null for the back-off
-- Returns the columns of each job that was locked, or one row of nulls. Every row ends with the ids of completed jobs
-- that were deleted (null if all of them were) and the ids of failed jobs that were written, negative if the job is not
-- retried (null if there are none). Jobs in neither list are gone, or locked by another pool.
--
-- A queue that continues stays locked throughout, so no other worker can get in between. A failure is written only while
-- the pool has the job. The back-off goes by the server's clock; `attempts` was raised by the fetch.
with
:include completed
,
failed as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
:include new_values
  from unnest($6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::text[], $11::double precision[])
    as failure (job_id, message, new_payload, own_max_attempts, decision, delay)
  -- An array of one id instead of an equality: with this, rows can only be looked up one by one. A session that plans the
  -- statement while the table is nearly empty would otherwise read all of it at every write from then on.
  where job.id = any (array[failure.job_id]) and job.locked_by = $1::text
  returning job.id, job.job_queue_id, job.is_available
),
ended as (
  select job_queue_id from completed
  union all
  select job_queue_id from failed
),
:include next_jobs
:include take_next
select
:include taken_columns
  , (
    select case when count(*) < pg_catalog.cardinality($2::bigint[]) then coalesce(pg_catalog.array_agg(id), '{}') end
    from completed
  ) as completed
  , (select pg_catalog.array_agg(case when is_available then id else - id end) from failed) as failed
from (select) always left join taken on true
order by priority, run_at

-- statement: write_and_keep @wide @routed @wide@routed
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
    ran.seconds, ran.result, $31::text as state, $21::double precision as keep_seconds
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
:include kept_end
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
:include next_jobs
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

-- statement: return_jobs
-- Return jobs that were locked but not run to their end: unlock them and their queues without using up the attempt.
--
-- $1 text      pool id; jobs that another pool has locked now are not touched
-- $2 bigint[]  job ids
-- $3 text      the new last_error, or null to keep the old one
-- $4 integer[] queues that these jobs had locked
-- $5 float8    minimum delay in seconds until they run again; 0 keeps run_at
-- Returns the ids that were unlocked, negative if the job cannot run again because its key was removed or replaced, and
-- whether it is obsolete (see parts/retired). Notifies other workers, since a returned job is as good as a new
-- one.
with
locked as materialized (
  select
    job.id,
:include retired
    as is_retired
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.id = any ($2::bigint[]) and job.locked_by = $1::text
  for update of job
),
returned as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
:include attempts_returned
    last_error = coalesce($3::text, job.last_error),
    run_at = case
      when $5::double precision > 0::double precision
        then greatest(job.run_at, now() + $5::double precision * interval '1 second')
      else job.run_at
    end,
    locked_by = null,
    locked_at = null
  from locked
  where job.id = any (array[locked.id]) -- see write_outcomes
  returning job.id, job.job_queue_id, job.is_available, locked.is_retired
),
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.id = any ($4::integer[]) and queue.locked_by = $1::text
    and queue.id in (select job_queue_id from returned)
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*), 'freed', true)::text)
  from returned where is_available having count(*) > 0
)
select case when returned.is_available then returned.id else - returned.id end, returned.is_retired
from returned left join notified on true

-- statement: release_queue
-- Unlock a queue of this pool, although one of its jobs stays locked because the database refuses its outcome.
-- The task has ended, so the other jobs of the queue can run.
--
-- $1 text     pool id
-- $2 integer  queue id
update :GRAPHILE_WORKER_SCHEMA._private_job_queues
set locked_by = null, locked_at = null
where id = $2::integer and locked_by = $1::text

-- statement: delete_retired_jobs
-- Delete obsolete jobs that this transaction has unlocked; see parts/retired.
--
-- $1 bigint[]  job ids
-- Returns the ids of the deleted jobs.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = any ($1::bigint[]) returning id

-- statement: mark_notified_failures
-- Note that the handlers of these permanently failed jobs were told. In the transaction that told them.
--
-- $1 bigint[]  job ids
insert into :GRAPHILE_WORKER_SCHEMA._private_py_told_failures (job_id, failed_at)
select job_id, date_part('epoch', now()) from pg_catalog.unnest($1::bigint[]) as told (job_id)
on conflict (job_id) do update set failed_at = excluded.failed_at

-- part: new_values
    -- What `job` gets for a `failure`. A job that is not retried always gets the time of the back-off, whatever delay its
    -- task wants: `standing` goes by it.
    last_error = case
      when failure.decision = 'snooze' and not
:include cut_off
        then job.last_error
      else failure.message
    end,
    payload = coalesce(failure.new_payload::json, job.payload),
    (max_attempts, attempts, run_at) = (
      select
        job.max_attempts,
        job.attempts,
        greatest(now(), job.run_at) + interval '1 second' * case
          when failure.delay is not null and job.attempts < job.max_attempts then failure.delay
          else back_off.seconds
        end
      from (
        -- The attempts after this one: all of them if the job is given up, one less if it is snoozed.
        select
          job.run_at,
          given.max_attempts,
          case
            when failure.decision = 'give_up' then greatest(job.attempts, given.max_attempts)
            when failure.decision = 'snooze' and not
:include cut_off
              then greatest(0, job.attempts - 1)
            else job.attempts
          end as attempts
        from (
          -- The number of the task, if the row has the default, because the add did not know the task's options. A job that
          -- is cut off has no attempts left, and gets none here.
          select case
            when job.max_attempts <> 25::smallint or
:include cut_off
              then job.max_attempts
            else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
          end as max_attempts
        ) as given
      ) as job
:include back_off
    ),
    locked_by = null,
    locked_at = null
