-- What a benchmark should say about the server: its version, and settings that decide how fast it is.
select
  current_setting('server_version') as version,
  current_setting('fsync') as fsync,
  current_setting('synchronous_commit') as synchronous_commit,
  current_setting('shared_buffers') as shared_buffers
