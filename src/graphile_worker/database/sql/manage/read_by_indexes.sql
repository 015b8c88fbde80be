-- For the rest of the transaction: read the jobs table by its indexes only. Without statistics, as in a table that was
-- just filled, the planner would rather read and sort all jobs for each batch.
select
    pg_catalog.set_config('enable_seqscan', 'off', true),
    pg_catalog.set_config('enable_bitmapscan', 'off', true),
    pg_catalog.set_config('jit', 'off', true)
