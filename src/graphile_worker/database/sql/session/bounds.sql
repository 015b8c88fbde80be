-- Bounds for the statements of one transaction.
--
-- $1 text  milliseconds that a statement may take
-- $2 text  milliseconds to wait for a lock
-- Compiling a statement and starting processes for it take longer than any of these should take; the estimates for a large
-- table ask for both.
select
  pg_catalog.set_config('statement_timeout', $1::text, true),
  pg_catalog.set_config('lock_timeout', $2::text, true),
  pg_catalog.set_config('jit', 'off', true),
  pg_catalog.set_config('max_parallel_workers_per_gather', '0', true)
