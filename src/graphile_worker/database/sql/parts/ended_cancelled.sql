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
