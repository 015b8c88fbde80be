-- Terminate sessions of ours whose connection was abandoned. A statement that is still in flight, or waits for a lock,
-- must not commit after we have read what is locked.
--
-- $1 integer[]  process ids
-- Returns the process ids of sessions that were still alive. Materialized, so that only our own are terminated.
with ours as materialized (
  select pid
  from pg_catalog.pg_stat_activity
  where pid = any ($1::integer[])
    and pid <> pg_backend_pid()
    and datname = current_database() and usename = current_user
    and application_name = pg_catalog.current_setting('application_name')
)
select pid, pg_terminate_backend(pid) from ours
