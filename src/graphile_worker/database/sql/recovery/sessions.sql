-- Sessions that a pool has lost.

-- statement: blocking_sessions
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

-- statement: end_held_batches
-- Terminate the sessions in which a dead worker pool holds jobs: they hold an advisory lock, see session/tune_hold_session.
-- The server may not have noticed yet that the worker is gone, and would keep its rows locked.
--
-- $1 text  name of the schema
-- $2 text  pool id
-- Returns the number of sessions, after a moment in which they can end. Materialized, so that only these are terminated.
with holding as materialized (
  select distinct pid
  from pg_catalog.pg_locks
  where pid <> pg_backend_pid()
    and granted and locktype = 'advisory' and objsubid = 1 and mode = 'ShareLock'
    and database = (select oid from pg_catalog.pg_database where datname = current_database())
    and classid = ((hashtextextended($1::text || '/' || $2::text || '/hold', 0::bigint) >> 32) & 4294967295)::oid
    and objid = (hashtextextended($1::text || '/' || $2::text || '/hold', 0::bigint) & 4294967295)::oid
)
select
  pg_catalog.count(pg_terminate_backend(pid)),
  case when pg_catalog.count(pid) > 0 then pg_sleep(0.02::double precision) end
from holding

-- statement: end_held_session
-- Terminate the session of a held batch if it is still idle in the same transaction.
--
-- $1 integer      backend pid
-- $2 timestamptz  when the transaction began
-- Returns a row if it was.
select pg_terminate_backend(session.pid)
from pg_catalog.pg_stat_activity session
where session.pid = $1::integer and session.state = 'idle in transaction' and session.xact_start = $2::timestamptz

-- statement: end_lost_sessions
-- Terminate sessions of ours whose connection was abandoned. A statement that is still in flight, or waits for a lock,
-- must not commit after we have read what is locked.
--
-- $1 integer[]  process ids
-- Returns the process ids of sessions that were still alive. Materialized, so that only our own are terminated.
with ours as materialized (
  select pid
  from pg_catalog.pg_stat_activity
  where pid = any ($1::integer[])
    and pid <> pg_backend_pid()
    and datname = current_database() and usename = current_user
    and application_name = pg_catalog.current_setting('application_name')
)
select pid, pg_terminate_backend(pid) from ours

-- statement: keep_held_jobs
-- Lock rows that a held batch has locked: `for key share` is compatible with the lock of a held batch and with no other
-- fetch. So no ordinary fetch can take them when the session of the batch ends.
--
-- $1 bigint[]  job ids
select id from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = any ($1::bigint[]) and locked_at is null
for key share skip locked
