-- Write a worker pool down among those that run, or anew after its row was swept away.
--
-- $1 text         pool id
-- $2 text         host
-- $3 integer      process id
-- $4 text         version of the package
-- $5 text[]       names of its tasks
-- $6 integer      jobs it runs at a time
-- $7 timestamptz  since when it runs, or null for now
-- $8 text         how its life shows: lock or heartbeat
-- $9 integer      process id of the session that holds its lock, or null
-- $10 interval    time between two heartbeats
-- $11 interval    how long it may be out of reach
-- Returns since when it runs.
--
-- The commit is not waited for: jobs that the pool locks later are written to the same log, and so cannot
-- survive a crash of the server without this row.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_workers
  (id, host, pid, version, tasks, concurrency, started_at, liveness, backend_pid, heartbeat_interval, grace)
select $1, $2, $3, $4, $5::text[], $6, coalesce($7, now()), $8, $9, $10, $11
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
on conflict (id) do update
set last_seen_at = now(), lost_at = null, liveness = excluded.liveness, backend_pid = excluded.backend_pid
returning started_at
