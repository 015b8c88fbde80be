-- Settings that several kinds of sessions share.

-- part: safe_search_path
  -- Put pg_catalog first, whatever the role or the database sets (see database/sql/__init__.py). The rest of the path stays, for
  -- triggers of the application.
  pg_catalog.set_config(
    'search_path',
    case
      when pg_catalog.current_setting('search_path') operator(pg_catalog.=) '' then 'pg_catalog'
      else pg_catalog.concat('pg_catalog, ', pg_catalog.current_setting('search_path'))
    end,
    false
  ),

-- part: no_transaction_timeout
  case -- not before PostgreSQL 17
    when pg_catalog.current_setting('transaction_timeout', true) is not null
      then pg_catalog.set_config('transaction_timeout', '0', false)
  end,
