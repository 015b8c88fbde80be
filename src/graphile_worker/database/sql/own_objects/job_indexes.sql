-- Indexes over jobs. None contains a waiting job that has neither queue nor key: such jobs pay nothing for them.

-- The jobs of all queues in fetch order. The shared index in that order also contains jobs without a queue, and a fetch
-- would have to read past all of them.
create index if not exists _private_py_jobs_queue_order_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (priority, run_at)
where is_available and job_queue_id is not null;

-- The next job of one queue, fetched as soon as the outcome of the previous one is written.
create index if not exists _private_py_jobs_queue_next_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (job_queue_id, priority, run_at)
where is_available and job_queue_id is not null;

-- Permanently failed jobs by id, to list, count and delete them without a scan. A job enters it only when its last
-- attempt has failed, so adding, running and completing jobs pays nothing for it.
create index if not exists _private_py_jobs_failed_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (id)
where not is_available and locked_at is null;

-- Waiting jobs with a key and without a queue, by task. A held batch locks none of them: it looks here how far it may go
-- before one of them is next, and what to lock in the ordinary way beside it. Jobs without a key are not in it and pay
-- nothing for it. By task first: those of tasks that a worker does not have are passed with one probe.
create index if not exists _private_py_jobs_keyed_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (task_id, priority, run_at)
where is_available and job_queue_id is null and key is not null;
