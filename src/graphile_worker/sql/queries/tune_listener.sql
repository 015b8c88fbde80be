-- Settings for the session that listens: it is idle by nature, and the server shall notice when we are gone.
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
  case -- not before PostgreSQL 14
    when current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '30', false),
  pg_catalog.set_config('tcp_keepalives_interval', '10', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false)
