-- Only one sweeps at a time, of whatever runtime: the Rust port takes the same lock. Ends with the transaction.
-- Returns whether it was free.
select pg_try_advisory_xact_lock(1196905043, 1398228304)
