-- What blocks the event loop of a worker pool, reported by its heartbeat thread, which a blocked loop does not stop.
alter table :GRAPHILE_WORKER_SCHEMA._private_py_workers
add column if not exists blocked jsonb; -- {"task": ..., "job": ..., "since": seconds since 1970}; null while the loop runs

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (8, 'blocked_loop')
on conflict (id) do nothing;
