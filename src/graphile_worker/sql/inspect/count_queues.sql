-- The number of named queues.
-- Returns queues and locked (those that a worker holds; no worker holds a paused one).
select count(*) as queues, count(*) filter (where job_queues.locked_by <> 'py:hold') as locked
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
where job_queues.queue_name !~ ' \[[1-9][0-9]*\]$' -- tracks of wide queues
