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
  case -- not before PostgreSQL 14
    when pg_catalog.current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '30', false),
  pg_catalog.set_config('tcp_keepalives_interval', '10', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false)
