-- Settings of sessions.

-- statement: backend_pid
-- The pid of the backend of this session. The driver knows another one behind a pooler.
select pg_backend_pid()

-- statement: bound_lock_waits
-- How long statements of this transaction wait for a lock at most. A shorter time that applies already is left as it is.
--
-- $1 text  lock_timeout
-- Returns what it was before.
with earlier as materialized (
  select setting, setting::interval as seconds
  from (select pg_catalog.current_setting('lock_timeout'::text) as setting) as current
)
select earlier.setting
from earlier
where pg_catalog.set_config(
  'lock_timeout'::text,
  case
    when earlier.seconds > interval '0' and earlier.seconds < $1::text::interval then earlier.setting else $1::text
  end,
  true
) is not null

-- statement: bounds
-- Bounds for the statements of one transaction.
--
-- $1 text  milliseconds that a statement may take
-- $2 text  milliseconds to wait for a lock
-- Compiling a statement and starting processes for it take longer than any of these should take; the estimates for a large
-- table ask for both.
select
  pg_catalog.set_config('statement_timeout', $1::text, true),
  pg_catalog.set_config('lock_timeout', $2::text, true),
  pg_catalog.set_config('jit', 'off', true),
  pg_catalog.set_config('max_parallel_workers_per_gather', '0', true)

-- statement: ping
-- Notify one channel with an empty payload.
--
-- $1 text  channel
select pg_notify($1::text, '')

-- statement: tune_hold_session
-- Settings for a connection with held batches, beside those of tune_session.
--
-- Its transactions wait for tasks. A task that blocks the event loop must not lose its job to another worker, so they may
-- be idle for long; a process that is gone ends them at once, and keepalives detect a machine that is gone.
--
-- $1 text  name of the schema
-- $2 text  pool id
-- The advisory lock says whose session this is: a sweep ends the sessions of a dead worker by it.
select
  pg_catalog.set_config('idle_in_transaction_session_timeout', '10min', false),
  pg_catalog.set_config('tcp_keepalives_idle', '5', false),
  pg_catalog.set_config('tcp_keepalives_interval', '3', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false),
  pg_try_advisory_lock_shared(hashtextextended($1::text || '/' || $2::text || '/hold', 0::bigint))

-- statement: tune_listener
-- Settings for the LISTEN connection: it is mostly idle, and the server must notice a dead worker. Timeouts and isolation
-- level of the role or the database do not apply: a LISTEN that has to wait would fail.
select
:include safe_search_path
:include no_transaction_timeout
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '1min', false),
  pg_catalog.set_config('lock_timeout', '0', false),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
:include idle_session

-- statement: tune_own
-- Settings for a pool connection while the worker itself uses it, for a few statements. They are reset before tasks
-- get it. Timeouts and isolation level of the role or the database are meant for others: see tune_session.
select
:include safe_search_path
:include no_transaction_timeout
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '2min', false),
  pg_catalog.set_config('lock_timeout', '0', false),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false)

-- statement: tune_session
-- Settings for a connection that only fetches jobs and writes outcomes, for the whole session.
--
-- The statements are written for one plan: ordered index scans, nested loops, rows by ctid. Estimates are wrong for a
-- table that fills and empties all the time, and one bad guess reads a million rows. A generic plan is made once;
-- planning each time would cost more than running.
--
-- Settings of the role or the database do not apply here. The statements are made for READ COMMITTED and would only
-- fail with conflicts under stricter isolation. They are short, and the worker abandons them otherwise. The timeouts are
-- for a server that cannot notice that the worker is dead: neither a statement that waits for a lock nor an open
-- transaction may block the other workers.
select
:include safe_search_path
  pg_catalog.set_config('enable_seqscan', 'off', false),
  pg_catalog.set_config('enable_bitmapscan', 'off', false),
  pg_catalog.set_config('enable_hashjoin', 'off', false),
  pg_catalog.set_config('enable_mergejoin', 'off', false),
  pg_catalog.set_config('enable_sort', 'off', false), -- if an index has the order; the others still sort
  case -- not before PostgreSQL 13
    when pg_catalog.current_setting('enable_incremental_sort', true) is not null
      then pg_catalog.set_config('enable_incremental_sort', 'off', false)
  end,
  pg_catalog.set_config('jit', 'off', false),
  pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '11min', false), -- longer than a worker ever waits
  pg_catalog.set_config('lock_timeout', '0', false),
:include no_transaction_timeout
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
:include idle_session

-- part: idle_session
  -- The server keeps an idle session, and notices within a minute that its client is gone.
  case -- not before PostgreSQL 14
    when pg_catalog.current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '30', false),
  pg_catalog.set_config('tcp_keepalives_interval', '10', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false)
