-- Look after queues that were resumed while a job of them was running. A write that began before the queue was resumed
-- and ended the job afterwards has not seen that the queue belongs to its pool again, and has not freed it.
--
-- Returns how many queues were freed.
with
-- One snapshot: a queue that is locked while none of its jobs is, stays locked. A pause that another session settles, or
-- resumes, is left to it: to wait for it here would be a deadlock.
settled as materialized (
  select paused.queue_id, queue.locked_by, queue.locked_at
  from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = paused.queue_id
  where paused.job_id is not null
    and not exists (
      select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.id = paused.job_id and job.locked_by = paused.holder
    )
  order by paused.queue_id
  for update of paused skip locked
),
stuck as materialized (
  select settled.queue_id, settled.locked_by, settled.locked_at
  from settled
  where settled.locked_at is not null and settled.locked_by <> 'py:hold'
    and not exists (
      select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.job_queue_id = settled.queue_id and job.locked_at is not null
    )
),
freed as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  from stuck
  where queue.id = stuck.queue_id and queue.locked_by = stuck.locked_by and queue.locked_at = stuck.locked_at
  returning queue.id
),
ended as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  using settled
  where paused.queue_id = settled.queue_id and paused.job_id is not null
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from freed having count(*) > 0
)
select count(*) as queues from freed left join notified on true
