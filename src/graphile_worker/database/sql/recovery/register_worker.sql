-- Register a worker pool, or register it again after a sweep deleted its row.
--
-- $1 text         pool id
-- $2 text         host
-- $3 integer      process id
-- $4 text         version of the package
-- $5 text[]       task identifiers
-- $6 integer      concurrency
-- $7 timestamptz  start time, or null for now
-- $8 text         liveness: lock or heartbeat
-- $9 integer      process id of the session that holds its lock, or null
-- $10 interval    heartbeat interval
-- $11 interval    grace: how long it may be unreachable before it is declared dead
-- Returns its start time.
--
-- Does not wait for the commit to reach the disk: jobs that the pool locks later come after it in the same log, so they
-- cannot survive a crash of the server without this row.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_workers
  (id, host, pid, version, tasks, concurrency, started_at, liveness, backend_pid, heartbeat_interval, grace)
select $1, $2, $3, $4, $5::text[], $6, coalesce($7, now()), $8, $9, $10, $11
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
on conflict (id) do update
set last_seen_at = now(), lost_at = null, liveness = excluded.liveness, backend_pid = excluded.backend_pid
returning started_at
