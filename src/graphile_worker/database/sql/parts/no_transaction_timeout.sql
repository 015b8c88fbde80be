  case -- not before PostgreSQL 17
    when pg_catalog.current_setting('transaction_timeout', true) is not null
      then pg_catalog.set_config('transaction_timeout', '0', false)
  end,
