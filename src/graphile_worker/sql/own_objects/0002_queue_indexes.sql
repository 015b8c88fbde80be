-- Two indexes over waiting jobs of named queues. Jobs without a queue are in neither and pay nothing for them.

-- The jobs of all queues in the order in which they are fetched. Upstream's index of that order holds the jobs
-- without a queue too, and a fetch would read past every one of them.
create index if not exists _private_py_jobs_queue_order_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (priority, run_at)
where is_available and job_queue_id is not null;

-- The next job of one queue, to go on with it as soon as its last job is written.
create index if not exists _private_py_jobs_queue_next_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (job_queue_id, priority, run_at)
where is_available and job_queue_id is not null;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (2, 'queue_indexes')
on conflict (id) do nothing;
