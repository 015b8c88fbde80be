-- Permanently failed jobs by id, to list, count and delete them without a scan. A job enters it only when its last
-- attempt has failed, so adding, running and completing jobs pays nothing for it.
create index if not exists _private_py_jobs_failed_index
on :GRAPHILE_WORKER_SCHEMA._private_jobs (id)
where not is_available and locked_at is null;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (5, 'failed_index')
on conflict (id) do nothing;
