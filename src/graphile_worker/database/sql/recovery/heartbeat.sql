-- A worker pool's heartbeat.
--
-- $1 text     pool id
-- $2 text     liveness: lock or heartbeat
-- $3 integer  process id of the session that holds its lock, or null
-- Returns the process id of this session and the server's time (seconds since 1970); no row if the pool was declared dead and its jobs were recovered. Does not
-- wait for the commit to reach the disk (see register_worker).
update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
set last_seen_at = now(), lost_at = null, liveness = $2, backend_pid = $3
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
where worker.id = $1::text
returning pg_backend_pid() as pid, date_part('epoch', clock_timestamp()) as server_time
