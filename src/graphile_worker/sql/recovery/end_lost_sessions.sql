-- End sessions of ours whose connection was given up: a statement that is still on its way to the server, or waits
-- there for a lock, must not be committed after we have looked at what is locked.
--
-- $1 integer[]  process ids
-- Returns the process ids of those that had not ended yet. Materialized, so that only sessions of ours are ended.
with ours as materialized (
  select pid
  from pg_stat_activity
  where pid = any ($1::integer[])
    and pid <> pg_backend_pid()
    and datname = current_database() and usename = current_user
    and application_name = current_setting('application_name')
)
select pid, pg_terminate_backend(pid) from ours
