-- For the rest of the transaction: read the latest rows of a large table in the order of an index, and stop at the
-- limit. For values that are not known when it plans, or without statistics, the planner expects few rows and would
-- rather read and sort them all.
select
  pg_catalog.set_config('enable_seqscan', 'off', true),
  pg_catalog.set_config('enable_bitmapscan', 'off', true),
  pg_catalog.set_config('enable_sort', 'off', true),
  pg_catalog.set_config('jit', 'off', true)
