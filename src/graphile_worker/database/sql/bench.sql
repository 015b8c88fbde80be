-- For `graphile-worker bench`.

-- statement: server
-- What a benchmark should say about the server: its version, and the settings that decide how long a commit takes.
select
  pg_catalog.current_setting('server_version') as version,
  pg_catalog.current_setting('fsync') as fsync,
  pg_catalog.current_setting('synchronous_commit') as synchronous_commit
