-- What each worker pool holds and runs, reported with its heartbeat: listing workers needs no scan of the jobs table, and
-- no index over locked jobs, which would cost every plain job.
alter table :GRAPHILE_WORKER_SCHEMA._private_py_workers
add column if not exists jobs_held integer, -- jobs locked, running or prefetched; null if the pool does not report
add column if not exists running jsonb; -- [[job id, start in seconds since 1970], ...], the longest-running first

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (7, 'running_jobs')
on conflict (id) do nothing;
