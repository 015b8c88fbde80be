-- Paused queues whose pause is over, or whose row is gone, as far as no other session ends them. Their rows stay locked
-- until the end of the transaction.
-- Returns queue_id and holder.
select paused.queue_id, paused.holder
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
where paused.job_id is null and (
  paused.until <= now()
  or not exists (select from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue where queue.id = paused.queue_id)
)
order by paused.queue_id
limit 100
for update skip locked
