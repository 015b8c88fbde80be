-- Two indexes over waiting jobs of named queues. They contain no jobs without a queue and cost those nothing.

-- The jobs of all queues in fetch order. The shared index in that order also contains jobs without a queue, and a fetch
-- would have to read past all of them.
create index if not exists _private_py_jobs_queue_order_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (priority, run_at)
where is_available and job_queue_id is not null;

-- The next job of one queue, fetched as soon as the outcome of the previous one is written.
create index if not exists _private_py_jobs_queue_next_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (job_queue_id, priority, run_at)
where is_available and job_queue_id is not null;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (2, 'queue_indexes')
on conflict (id) do nothing;
