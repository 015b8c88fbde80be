-- What becomes of jobs and locks that a pool has left behind.

-- statement: orphaned_jobs
-- The jobs that dead worker pools have locked.
--
-- $1 text[]  pool ids
-- Returns the columns of a job, the task's identifier, recoveries (how often the job was recovered before) and counts
-- (whether this recovery counts: the first always does; later ones only if the job is known to have been started, so
-- that a prefetched job is not blamed for another one).
select
:include job_columns
  , task.identifier,
  coalesce(recovery.recoveries, 0) as recoveries,
  recovery.job_id is null or recovery.started_by is not distinct from job.locked_by as counts
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_py_recoveries recovery on recovery.job_id = job.id
where job.locked_by = any ($1::text[])
order by job.id

-- statement: recover_jobs
-- Recover the jobs of dead worker pools and free the queues that they had locked.
--
-- $1 text[]    pool ids
-- $2 bigint[]  job ids
-- $3 text[]    action for each: return (the attempt does not count), fail (it counts, and the job is retried after
--              the back-off) or give_up (the job fails permanently)
-- $4 text[]    last_error of each
-- $5 boolean[] whether the recovery counts against the job
-- $6 interval  delay before returned jobs run
-- $7 integer[] queues that stay locked because one of their jobs does
-- Returns the ids of the recovered jobs, whether each can run again, its last_error, and whether it was to be returned and
-- is obsolete (see parts/retired). Notifies workers if any can run.
--
-- A job whose key was reused or removed while it was locked has no key and no attempts left, and was updated after it
-- was locked. It does not come back: an older payload would run after the one that replaced it.
with
decided as materialized (
  select * from unnest($2::bigint[], $3::text[], $4::text[], $5::boolean[]) as decided (id, action, message, counts)
),
locked as materialized (
  select
    job.id,
    decided.action = 'return' and
:include retired
    as is_retired,
    back_off.seconds as back_off
  from decided join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = decided.id
:include back_off
  where job.locked_by = any ($1::text[])
  for update of job
),
recovered as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
    attempts = case
      when decided.action = 'fail' then job.attempts
      when
:include cut_off
      then job.attempts
      when decided.action = 'return' then greatest(0, job.attempts - 1)
      else greatest(job.attempts, job.max_attempts)
    end,
    run_at = case decided.action
      when 'return' then greatest(job.run_at, now() + $6::interval)
      when 'fail' then greatest(job.run_at, now()) + interval '1 second' * locked.back_off
      else job.run_at
    end,
    last_error = case
      when
:include cut_off
      then 'Not run again: its worker died after its key had been used again or removed'
      else decided.message
    end,
    locked_by = null,
    locked_at = null,
    updated_at = now()
  from decided join locked on locked.id = decided.id
  where job.id = decided.id
  returning job.id, decided.action, decided.counts, job.is_available, job.last_error, locked.is_retired
),
counted as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_recoveries as recovery (job_id, recoveries)
  select recovered.id, recovered.counts::integer from recovered where recovered.action <> 'give_up'
  on conflict (job_id) do update
  set
    recoveries = recovery.recoveries + excluded.recoveries, -- from this row: looking each one up is quadratic
    last_at = now(),
    started_by = null
),
-- Reset the counter, so that a manual retry starts from zero.
reset_counter as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_recoveries recovery
  using recovered
  where recovery.job_id = recovered.id and recovered.action = 'give_up'
),
freed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = any ($1::text[]) and queue.id <> all ($7::integer[])
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*), 'freed', true)::text)
  from recovered where action = 'return' and is_available having count(*) > 0
)
select recovered.id, recovered.is_available, recovered.last_error, recovered.is_retired
from recovered left join notified on true

-- statement: reclaim_jobs
-- Return jobs that a pool has locked without knowing it, because the reply to its fetch was lost.
--
-- $1 text       pool id
-- $2 bigint[]   ids of the jobs that the pool knows it has locked
-- $3 integer[]  ids of the queues that it has locked for held batches
-- Returns the ids of the returned jobs, and whether the job is obsolete (see parts/retired). The attempt does not
-- count. Other queues locked for no known job are freed.
with
locked as materialized (
  select
    job.id,
:include retired
    as is_retired
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.locked_by = $1::text and job.id <> all ($2::bigint[])
  for update of job
),
lost as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
:include attempts_returned
    locked_by = null,
    locked_at = null
  from locked
  where job.id = any (array[locked.id]) -- see write_outcomes
  returning job.id, locked.is_retired
),
freed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1::text and queue.id <> all ($3::integer[]) and not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.locked_by = $1::text and job.id = any ($2::bigint[]) and job.job_queue_id = queue.id
  )
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*), 'freed', true)::text)
  from lost having count(*) > 0
)
select lost.id, lost.is_retired from lost left join notified on true

-- statement: lock_kept_jobs
-- Lock jobs of a held batch whose session ends as a fetch would have done; see keep_held_jobs. Skips rows that the
-- session, or another one that waited, still has locked.
--
-- $1 text         pool id
-- $2 bigint[]     job ids
-- $3 timestamptz  the worker's time, or null for the server's
-- Returns their ids.
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($3::timestamptz, now())
where job.id = any (
  array(
    select held.id from :GRAPHILE_WORKER_SCHEMA._private_jobs held
    where held.id = any ($2::bigint[]) and held.locked_at is null
    for no key update skip locked
  )
)
returning job.id

-- statement: note_rerun
-- Record that a pool is about to run a recovered job: if it dies too, the job may be the cause.
--
-- $1 text    pool id
-- $2 bigint  job id
insert into :GRAPHILE_WORKER_SCHEMA._private_py_recoveries (job_id, recoveries, started_by)
values ($2, 0, $1)
on conflict (job_id) do update set started_by = excluded.started_by

-- statement: purge_recoveries
-- Delete recovery counters of jobs that no longer exist.
-- Returns the number of rows.
with gone as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_recoveries recovery
  where not exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = recovery.job_id)
  returning job_id
)
select count(*) from gone

-- statement: reset_locked
-- Clear locks older than four hours, whatever runtime holds them.
--
-- $1 timestamptz  the current time, or null for the server's
-- Returns the number of freed jobs and of freed queues, and the ids of obsolete jobs (see parts/retired).
with
locked as materialized (
  select
    job.id,
:include retired
    as is_retired
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.locked_at < coalesce($1::timestamptz, now()) - interval '4 hours'
  for update of job
),
freed_job as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set locked_at = null, locked_by = null, run_at = greatest(job.run_at, coalesce($1::timestamptz, now()))
  from locked
  where job.id = any (array[locked.id]) -- see write_outcomes
  returning job.id, locked.is_retired
),
freed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues
  set locked_at = null, locked_by = null
  where locked_at < coalesce($1::timestamptz, now()) - interval '4 hours'
  returning id
)
select
  (select count(*) from freed_job) as jobs,
  (select count(*) from freed_queue) as queues,
  array(select id from freed_job where is_retired) as retired

-- statement: renew_locks
-- Renew the locks of long-running jobs and of their queues: every runtime clears locks older than four hours.
--
-- $1 text         pool id
-- $2 bigint[]     ids of the jobs that it has locked
-- $3 timestamptz  the current time, or null for the server's
-- Returns the number of renewed locks: those older than an hour.
with
renewed as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs
  set
    locked_at = coalesce($3::timestamptz, now()),
    -- updated_at > locked_at means that the job's key was reused (see recover_jobs): keep it so.
    updated_at = case
      when updated_at > locked_at then coalesce($3::timestamptz, now()) + interval '1 microsecond'
      else updated_at
    end
  where id = any ($2::bigint[]) and locked_by = $1::text
    and locked_at < coalesce($3::timestamptz, now()) - interval '1 hour'
  returning job_queue_id
),
renewed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues
  set locked_at = coalesce($3::timestamptz, now())
  where locked_by = $1::text and id = any (array(select job_queue_id from renewed where job_queue_id is not null))
)
select count(*) from renewed

-- statement: still_locked
-- Which of these jobs a pool still has locked.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- Returns their ids, and when they were added, in seconds since 1970.
select id, date_part('epoch', created_at) as created_at
from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = any ($2::bigint[]) and locked_by = $1::text

-- statement: gone_jobs
-- Which of these jobs have no row.
--
-- $1 bigint[]  job ids
-- Returns their ids.
select wanted.id
from pg_catalog.unnest($1::bigint[]) as wanted (id)
where not exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = wanted.id)
