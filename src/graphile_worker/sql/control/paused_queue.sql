-- The hold of a queue that is paused. Its row stays locked until the end of the transaction.
--
-- $1 text  queue name
-- Returns queue_id and holder.
select hold.queue_id, hold.holder
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds hold
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = hold.queue_id
where queue.queue_name = $1::text and hold.job_id is null
for update of hold
