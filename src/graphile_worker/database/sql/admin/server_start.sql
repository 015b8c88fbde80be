-- When the server was started.
select pg_postmaster_start_time()
