-- Terminate the sessions in which a dead worker pool holds jobs: they hold an advisory lock, see session/tune_hold_session.
-- The server may not have noticed yet that the worker is gone, and would keep its rows locked.
--
-- $1 text  name of the schema
-- $2 text  pool id
-- Returns the number of sessions, after a moment in which they can end. Materialized, so that only these are terminated.
with holding as materialized (
  select distinct pid
  from pg_catalog.pg_locks
  where pid <> pg_backend_pid()
    and granted and locktype = 'advisory' and objsubid = 1 and mode = 'ShareLock'
    and database = (select oid from pg_catalog.pg_database where datname = current_database())
    and classid = ((hashtextextended($1::text || '/' || $2::text || '/hold', 0::bigint) >> 32) & 4294967295)::oid
    and objid = (hashtextextended($1::text || '/' || $2::text || '/hold', 0::bigint) & 4294967295)::oid
)
select
  pg_catalog.count(pg_terminate_backend(pid)),
  case when pg_catalog.count(pid) > 0 then pg_sleep(0.02::double precision) end
from holding
