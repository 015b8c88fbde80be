-- How far the shared ledger has come.
-- Result: one row: revision, breaking_revision (integers, null when there are none), age (interval since then).
select
    max(id) as revision,
    max(id) filter (where breaking) as breaking_revision,
    clock_timestamp() - max(ts) as age
from :GRAPHILE_WORKER_SCHEMA.migrations
