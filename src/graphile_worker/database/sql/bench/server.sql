-- What a benchmark should say about the server: its version, and settings that decide how fast it is.
select
  pg_catalog.current_setting('server_version') as version,
  pg_catalog.current_setting('fsync') as fsync,
  pg_catalog.current_setting('synchronous_commit') as synchronous_commit,
  pg_catalog.current_setting('shared_buffers') as shared_buffers
