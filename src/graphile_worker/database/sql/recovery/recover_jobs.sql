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
    as is_retired
  from decided join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = decided.id
  where job.locked_by = any ($1::text[])
  for update of job
),
recovered as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
    attempts = case
      when decided.action = 'fail' then job.attempts
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
      when decided.action = 'return' then greatest(0, job.attempts - 1)
      else greatest(job.attempts, job.max_attempts)
    end,
    run_at = case decided.action
      when 'return' then greatest(job.run_at, now() + $6::interval)
      when 'fail'
        then greatest(job.run_at, now()) + interval '1 second' *
:include back_off
      else job.run_at
    end,
    last_error = case
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at
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
