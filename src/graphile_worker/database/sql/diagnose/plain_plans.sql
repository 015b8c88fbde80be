-- For the rest of the transaction: neither compile statements nor start processes for them. Both take longer than the
-- statement itself; the planner does not know that it leaves a large table alone.
select
    pg_catalog.set_config('jit', 'off', true),
    pg_catalog.set_config('max_parallel_workers_per_gather', '0', true)
