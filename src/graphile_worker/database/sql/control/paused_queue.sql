-- The row of a queue that is paused. Its row stays locked until the end of the transaction.
--
-- $1 text  queue name
-- Returns queue_id and holder.
select paused.queue_id, paused.holder
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = paused.queue_id
where queue.queue_name = $1::text and paused.job_id is null
for update of paused
