-- Only one sweeps at a time, of whatever runtime: the Rust port takes the same lock. Ends with the transaction.
-- Returns whether it was free.
--
-- If whoever has it vanishes from the network, the server ends its transaction after some seconds: else nobody could
-- sweep for as long as the server believes in that connection.
select pg_try_advisory_xact_lock(1196905043, 1398228304)
from (select pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true)) setting
