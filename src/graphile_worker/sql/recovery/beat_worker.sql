-- A sign of life of a worker pool.
--
-- $1 text     pool id
-- $2 text     how its life shows: lock or heartbeat
-- $3 integer  process id of the session that holds its lock, or null
-- Returns the process id of this session; no row if the pool is not among those that run, because others took
-- it for dead and gave its jobs away. The commit is not waited for (see register_worker).
update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
set last_seen_at = now(), lost_at = null, liveness = $2, backend_pid = $3
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
where worker.id = $1
returning pg_backend_pid()
