-- Holds of queues whose pause is over, or whose row is gone, as far as no other session ends them. Their rows stay locked
-- until the end of the transaction.
-- Returns queue_id and holder.
select hold.queue_id, hold.holder
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds hold
where hold.job_id is null and (
  hold.until <= now()
  or not exists (select from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue where queue.id = hold.queue_id)
)
order by hold.queue_id
limit 100
for update skip locked
