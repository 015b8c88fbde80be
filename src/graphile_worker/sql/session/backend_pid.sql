-- Process id of the server's side of this session. A pooler in between tells its clients another one.
select pg_backend_pid()
