-- Settings for a connection with held batches, beside those of tune_session.
--
-- Its transactions wait for tasks. A task that blocks the event loop must not lose its job to another worker, so they may
-- be idle for long; a process that is gone ends them at once, and keepalives detect a machine that is gone.
--
-- $1 text  name of the schema
-- $2 text  pool id
-- The advisory lock says whose session this is: a sweep ends the sessions of a dead worker by it.
select
  pg_catalog.set_config('idle_in_transaction_session_timeout', '10min', false),
  pg_catalog.set_config('tcp_keepalives_idle', '5', false),
  pg_catalog.set_config('tcp_keepalives_interval', '3', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false),
  pg_try_advisory_lock_shared(hashtextextended($1::text || '/' || $2::text || '/hold', 0::bigint))
