-- Clear locks older than four hours, whatever runtime holds them.
--
-- $1 timestamptz  the current time, or null for the server's
-- Returns the number of freed jobs and of freed queues.
with
freed_job as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs
  set locked_at = null, locked_by = null, run_at = greatest(run_at, coalesce($1::timestamptz, now()))
  where locked_at < coalesce($1::timestamptz, now()) - interval '4 hours'
  returning id
),
freed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues
  set locked_at = null, locked_by = null
  where locked_at < coalesce($1::timestamptz, now()) - interval '4 hours'
  returning id
)
select (select count(*) from freed_job) as jobs, (select count(*) from freed_queue) as queues
