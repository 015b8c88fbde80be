-- The server's time and process, for the doctor.
-- Returns at (seconds since 1970 at this moment, not at the transaction's start) and pid.
select extract(epoch from clock_timestamp())::double precision as at, pg_backend_pid() as pid
