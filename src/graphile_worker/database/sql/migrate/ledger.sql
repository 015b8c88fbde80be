-- The current revision of the shared ledger.
-- Result: one row: revision, breaking_revision (integers, null when there are none), age (interval since then).
select
    max(id) as revision,
    max(id) filter (where breaking) as breaking_revision,
    case when isfinite(max(ts)) then clock_timestamp() - max(ts) end as age
from :GRAPHILE_WORKER_SCHEMA.migrations
