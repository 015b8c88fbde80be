-- Queues by name.
--
-- $1 text[]  names
-- Returns id and queue_name.
select id, queue_name
from :GRAPHILE_WORKER_SCHEMA._private_job_queues
where queue_name = any ($1::text[])
order by id
