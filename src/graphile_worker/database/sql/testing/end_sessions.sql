-- End every session of a database.
--
-- $1 text  the database's name
select pg_terminate_backend(pid) from pg_catalog.pg_stat_activity where datname = $1 and pid <> pg_backend_pid()
