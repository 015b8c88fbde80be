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
