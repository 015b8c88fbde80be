-- Waiting jobs with a key and without a queue, by task. A held batch locks none of them: it looks here how far it may go
-- before one of them is next, and what to lock in the ordinary way beside it. Jobs without a key are not in it and pay
-- nothing for it. By task first: those of tasks that a worker does not have are passed with one probe.
create index if not exists _private_py_jobs_keyed_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (task_id, priority, run_at)
where is_available and job_queue_id is null and key is not null;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (27, 'keyed_index')
on conflict (id) do nothing;
