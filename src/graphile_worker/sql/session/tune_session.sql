-- Settings for a connection that only fetches jobs and writes outcomes; they last as long as the session.
--
-- The statements are written for one plan: index scans in order, nested loops, rows by place. Estimates go
-- wrong on a table that empties and fills all the time, and one bad guess reads a million rows. A generic plan
-- is made once; planning anew would cost more than running.
--
-- What the role or the database sets for others does not apply here. The statements are made for READ COMMITTED and
-- would only fail each other under anything stricter. They are short, and given up by the worker when they are not;
-- the limits of time are for a server that cannot tell any more that the worker is gone: neither a statement that
-- waits for a lock nor an open transaction may hold up the other workers.
select
:include safe_search_path
  pg_catalog.set_config('enable_seqscan', 'off', false),
  pg_catalog.set_config('enable_bitmapscan', 'off', false),
  pg_catalog.set_config('enable_hashjoin', 'off', false),
  pg_catalog.set_config('enable_mergejoin', 'off', false),
  pg_catalog.set_config('enable_sort', 'off', false), -- where an index has the order; elsewhere they still sort
  case -- not before PostgreSQL 13
    when current_setting('enable_incremental_sort', true) is not null
      then pg_catalog.set_config('enable_incremental_sort', 'off', false)
  end,
  pg_catalog.set_config('jit', 'off', false),
  pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '11min', false), -- above the longest that a worker waits
  pg_catalog.set_config('lock_timeout', '0', false),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
  case -- not before PostgreSQL 14
    when current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '30', false),
  pg_catalog.set_config('tcp_keepalives_interval', '10', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false)
