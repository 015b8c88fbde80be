-- Take jobs from dead worker pools, as was decided about each of them, and free the queues that they held.
--
-- $1 text[]    pool ids
-- $2 bigint[]  job ids
-- $3 text[]    what becomes of each: return (the attempt does not count), fail (it does, and the job is tried
--              again after the back-off) or give_up (it is not tried again)
-- $4 text[]    last_error of each
-- $5 boolean[] whether the recovery counts against the job
-- $6 interval  how long returned jobs wait
-- $7 integer[] queues that stay locked, because a job of theirs does
-- Returns the ids of the jobs that were taken, whether each can run again, and its last_error. Workers are told if
-- there is something to do.
--
-- A job whose key was used again or removed while it was locked has no key and no attempts left, and was changed
-- after it was locked. It does not come back, or an older payload would run after the one that replaced it.
with
decided as materialized (
  select * from unnest($2::bigint[], $3::text[], $4::text[], $5::boolean[]) as decided (id, verdict, message, counts)
),
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
    attempts = case
      when decided.verdict = 'fail' then job.attempts
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
      when decided.verdict = 'return' then greatest(0, job.attempts - 1)
      else greatest(job.attempts, job.max_attempts)
    end,
    run_at = case decided.verdict
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
  from decided
  where job.id = decided.id and job.locked_by = any ($1::text[])
  returning job.id, decided.verdict, decided.counts, job.is_available, job.last_error
),
counted as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_recoveries as recovery (job_id, recoveries)
  select taken.id, 1 from taken where taken.verdict <> 'give_up'
  on conflict (job_id) do update
  set
    recoveries = recovery.recoveries
      + (select taken.counts::integer from taken where taken.id = recovery.job_id),
    last_at = now(),
    started_by = null
),
-- Somebody who wants such a job to run again shall have all the tries anew.
forgiven as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_recoveries recovery
  using taken
  where recovery.job_id = taken.id and taken.verdict = 'give_up'
),
freed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = any ($1) and queue.id <> all ($7::integer[])
),
told as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from taken where verdict = 'return' and is_available having count(*) > 0
)
select taken.id, taken.is_available, taken.last_error from taken left join told on true
