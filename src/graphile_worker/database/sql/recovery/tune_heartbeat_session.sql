-- Settings for the session that holds a worker's lock. Keepalives let the server notice soon that a machine is gone; on a
-- Unix socket they have no effect. Timeouts and isolation level override what the role or the database sets.
select
:include safe_search_path
  pg_catalog.set_config('tcp_keepalives_idle', '5', false),
  pg_catalog.set_config('tcp_keepalives_interval', '3', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '1min', false),
  pg_catalog.set_config('lock_timeout', '0', false),
:include no_transaction_timeout
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
  case -- not before PostgreSQL 14
    when pg_catalog.current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end
