-- One sweep at a time, across runtimes: the Rust port takes the same lock. Ends with the transaction.
-- Returns whether it was free.
--
-- $1 text  longest duration of the transaction
--
-- The timeouts end the transaction of a sweeper that was suspended or vanished from the network. Without them no other
-- worker could sweep until the server noticed. The first one covers the time between statements. The driver sends a
-- statement in two steps, and between these the session is not idle: the second one covers that, where there is one, and
-- other sweepers end such a session (silent_sweeper).
select pg_try_advisory_xact_lock(1196905043, 1398228304)
from (
  select
    pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true),
    case when pg_catalog.current_setting('server_version_num')::integer >= 170000
      then pg_catalog.set_config('transaction_timeout', $1::text, true)
    end
) setting
