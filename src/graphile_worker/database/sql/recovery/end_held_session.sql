-- Terminate the session of a held batch if it is still idle in the same transaction.
--
-- $1 integer      backend pid
-- $2 timestamptz  when the transaction began
-- Returns a row if it was.
select pg_terminate_backend(session.pid)
from pg_catalog.pg_stat_activity session
where session.pid = $1::integer and session.state = 'idle in transaction' and session.xact_start = $2::timestamptz
