-- The number of named queues.
-- Returns queues and locked (those that a worker has locked; a paused one does not count).
select count(*) as queues, count(*) filter (where job_queues.locked_by <> 'py:hold') as locked
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
where job_queues.queue_name !~ ' \[[1-9][0-9]*\]$' -- tracks of wide queues
