-- Terminate this pool's previous session: its connection is lost, but the server has not noticed and keeps the lock.
--
-- $1 text  name of the schema
-- $2 text  pool id
-- Returns the number of terminated sessions: 0 if something else holds the lock briefly.
select pg_catalog.count(pg_terminate_backend(held.pid))
from pg_catalog.pg_locks held
join :GRAPHILE_WORKER_SCHEMA._private_py_workers worker on worker.backend_pid = held.pid
where worker.id = $2::text
  and held.pid <> pg_backend_pid()
  and held.granted and held.locktype = 'advisory' and held.objsubid = 1
  and held.database = (select oid from pg_catalog.pg_database where datname = current_database())
  and held.classid = ((hashtextextended($1::text || '/' || $2::text, 0::bigint) >> 32) & 4294967295)::oid
  and held.objid = (hashtextextended($1::text || '/' || $2::text, 0::bigint) & 4294967295)::oid
