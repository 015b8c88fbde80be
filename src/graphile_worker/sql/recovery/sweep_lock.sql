-- One sweep at a time, across runtimes: the Rust port takes the same lock. Ends with the transaction.
-- Returns whether it was free.
--
-- The timeout ends the transaction of a sweeper that vanished from the network. Without it no other worker could sweep
-- until the server noticed.
select pg_try_advisory_xact_lock(1196905043, 1398228304)
from (select pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true)) setting
