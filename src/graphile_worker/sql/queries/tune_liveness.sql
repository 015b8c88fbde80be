-- Settings for the session that holds a worker's lock: the server shall notice soon when the machine at the other
-- end is gone without a word. They mean nothing, and do no harm, on a Unix socket. Limits of time and an isolation
-- level that the role or the database sets for others do not apply here.
select
  -- Nothing is looked for before PostgreSQL's own, whatever the role or the database says (see sql/__init__.py). What
  -- triggers of the application look for is found after that.
  pg_catalog.set_config(
    'search_path',
    case
      when pg_catalog.current_setting('search_path') operator(pg_catalog.=) '' then 'pg_catalog'
      else pg_catalog.concat('pg_catalog, ', pg_catalog.current_setting('search_path'))
    end,
    false
  ),
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
