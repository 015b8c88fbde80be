-- The pid of the backend of this session. The driver knows another one behind a pooler.
select pg_backend_pid()
