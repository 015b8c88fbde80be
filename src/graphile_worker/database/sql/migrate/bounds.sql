-- Timeouts for a transaction that migrates. Creating an index on a large table may take longer than the role's timeouts
-- allow. Its lock_timeout stays, because it may be there to protect other sessions from this very transaction.
select
  pg_catalog.set_config('statement_timeout', '0', true),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '1min', true),
  case -- not before PostgreSQL 17
    when pg_catalog.current_setting('transaction_timeout', true) is not null
      then pg_catalog.set_config('transaction_timeout', '0', true)
  end
