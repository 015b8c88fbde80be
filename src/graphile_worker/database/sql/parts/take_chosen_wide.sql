-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: takes the jobs that `queued` has chosen,
-- locks the rows of their queues, and moves them there.
,
chosen_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
  where queue.id = any (array(select job_queue_id from chosen where job_queue_id is not null))
),
-- New queues by ctid. A join of the update with `chosen` might read the whole table.
moved as materialized (
  select pg_catalog.jsonb_object_agg(place::text, job_queue_id) as queues from chosen where job_queue_id <> old_queue_id
)
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set
  attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now()),
  job_queue_id = coalesce(((select queues from moved) ->> job.ctid::text)::integer, job.job_queue_id)
where job.ctid = any (array(select place from chosen))
returning
:include taken_columns
