-- Unlock a queue of this pool, although one of its jobs stays locked because the database refuses its outcome.
-- The task has ended, so the other jobs of the queue can run.
--
-- $1 text     pool id
-- $2 integer  queue id
update :GRAPHILE_WORKER_SCHEMA._private_job_queues
set locked_by = null, locked_at = null
where id = $2::integer and locked_by = $1::text
