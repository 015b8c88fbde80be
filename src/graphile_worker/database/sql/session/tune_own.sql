-- Settings for a pool connection while the worker itself uses it, for a few statements. They are reset before tasks
-- get it. Timeouts and isolation level of the role or the database are meant for others: see tune_session.
select
:include safe_search_path
:include no_transaction_timeout
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '2min', false),
  pg_catalog.set_config('lock_timeout', '0', false),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false)
