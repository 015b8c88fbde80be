-- Return jobs that a pool has locked without knowing it, because the reply to its fetch was lost.
--
-- $1 text      pool id
-- $2 bigint[]  ids of the jobs that the pool knows it has locked
-- Returns the ids of the returned jobs; the attempt does not count. Queues locked for no known job are freed.
with
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
  where job.locked_by = $1::text and job.id <> all ($2::bigint[])
  returning job.id
),
freed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1 and not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.locked_by = $1 and job.id = any ($2::bigint[]) and job.job_queue_id = queue.id
  )
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from lost having count(*) > 0
)
select lost.id from lost left join notified on true
