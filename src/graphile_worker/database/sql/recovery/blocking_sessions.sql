-- Which of these sessions, idle in a transaction, others wait for.
--
-- $1 integer[]  backend pids
-- Returns pid and xact_start, by which the transaction is recognised.
select session.pid, session.xact_start
from pg_catalog.pg_stat_activity session
where session.pid = any ($1::integer[]) and session.state = 'idle in transaction'
  and exists (
    select from pg_catalog.pg_locks waiting
    where not waiting.granted and session.pid = any (pg_blocking_pids(waiting.pid))
  )
