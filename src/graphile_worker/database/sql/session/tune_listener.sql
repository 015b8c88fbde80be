-- Settings for the LISTEN connection: it is mostly idle, and the server must notice a dead worker. Timeouts and isolation
-- level of the role or the database do not apply: a LISTEN that has to wait would fail.
select
:include safe_search_path
:include no_transaction_timeout
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '1min', false),
  pg_catalog.set_config('lock_timeout', '0', false),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
  case -- not before PostgreSQL 14
    when pg_catalog.current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '30', false),
  pg_catalog.set_config('tcp_keepalives_interval', '10', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false)
