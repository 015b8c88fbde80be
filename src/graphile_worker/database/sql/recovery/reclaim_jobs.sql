-- Return jobs that a pool has locked without knowing it, because the reply to its fetch was lost.
--
-- $1 text      pool id
-- $2 bigint[]  ids of the jobs that the pool knows it has locked
-- Returns the ids of the returned jobs, and whether the job is obsolete (see parts/retired). The attempt does not
-- count. Queues locked for no known job are freed.
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
    attempts = case -- a job that was replaced by its key does not come back (see recover_jobs)
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
      else greatest(0, job.attempts - 1)
    end,
    locked_by = null,
    locked_at = null
  from locked
  where job.id = any (array[locked.id]) -- see write_outcomes
  returning job.id, locked.is_retired
),
freed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1::text and not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.locked_by = $1::text and job.id = any ($2::bigint[]) and job.job_queue_id = queue.id
  )
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*), 'freed', true)::text)
  from lost having count(*) > 0
)
select lost.id, lost.is_retired from lost left join notified on true
