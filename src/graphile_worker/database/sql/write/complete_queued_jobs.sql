-- Delete completed jobs and unlock their named queues.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- Returns no row if all were deleted, else one row with the ids of those that were not.
with
:include completed
,
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1::text
    and queue.id = any (array(select job_queue_id from completed where job_queue_id is not null))
)
:include missing
