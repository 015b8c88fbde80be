-- Settings for the session that holds a worker's lock: the server shall notice soon when the machine at the other
-- end is gone without a word. They mean nothing, and do no harm, on a Unix socket. Limits of time and an isolation
-- level that the role or the database sets for others do not apply here.
select
:include safe_search_path
  pg_catalog.set_config('tcp_keepalives_idle', '5', false),
  pg_catalog.set_config('tcp_keepalives_interval', '3', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '1min', false),
  pg_catalog.set_config('lock_timeout', '0', false),
  case -- not before PostgreSQL 14
    when current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end
