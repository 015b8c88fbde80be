-- Named queues and tracks of wide ones, some of all.
--
-- $1 integer  how many at most
-- Returns id and queue_name.
select queue.id, queue.queue_name
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
limit $1::integer
