-- Part of get_jobs and get_jobs_above_watermarks: takes the jobs that `queued` has chosen, and locks their queues.
,
chosen_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
  where queue.id = any (array(select job_queue_id from chosen where job_queue_id is not null))
)
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from chosen))
returning
:include taken_columns
