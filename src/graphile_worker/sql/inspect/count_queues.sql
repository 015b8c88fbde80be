-- The number of named queues.
-- Returns queues and locked (those that a worker holds).
select count(*) as queues, pg_catalog.count(job_queues.locked_at) as locked
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
