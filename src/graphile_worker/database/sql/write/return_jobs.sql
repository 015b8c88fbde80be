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
    attempts = case -- a job that was replaced by its key does not come back (see recover_jobs)
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
      else greatest(0, job.attempts - 1)
    end,
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
