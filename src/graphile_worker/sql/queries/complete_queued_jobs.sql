-- Delete finished jobs and free their named queues: what write_outcomes does if none failed and no queue goes on.
--
-- $1 bigint[]  job ids
-- $2 text      pool id
with completed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($1::bigint[]) and (locked_by = $2::text or key is null)
  returning job_queue_id
)
update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
set locked_by = null, locked_at = null
where queue.locked_by = $2
  and queue.id = any (array(select job_queue_id from completed where job_queue_id is not null))
