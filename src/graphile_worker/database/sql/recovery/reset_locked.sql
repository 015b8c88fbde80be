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
