-- Settings for the LISTEN connection: it is mostly idle, and the server must notice a dead worker.
select
:include safe_search_path
  case -- not before PostgreSQL 14
    when current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '30', false),
  pg_catalog.set_config('tcp_keepalives_interval', '10', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false)
