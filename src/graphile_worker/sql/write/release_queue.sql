-- Free a queue that a pool holds.
--
-- $1 text     pool id
-- $2 integer  queue id
-- For the queue of a job whose outcome the database refuses: the job stays locked, but its task has ended, so the other
-- jobs of the queue need not wait for it.
update :GRAPHILE_WORKER_SCHEMA._private_job_queues
set locked_by = null, locked_at = null
where id = $2::integer and locked_by = $1::text
