-- The current revision of an older ledger, which does not mark breaking revisions.
-- Result: one row: revision (integer, null when empty), age (interval since the last row).
select max(id) as revision, case when isfinite(max(ts)) then clock_timestamp() - max(ts) end as age
from :GRAPHILE_WORKER_SCHEMA.migrations
