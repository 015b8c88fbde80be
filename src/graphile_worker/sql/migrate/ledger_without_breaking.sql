-- How far a ledger has come that was written before breaking revisions were marked.
-- Result: one row: revision (integer, null when empty), age (interval since the last row).
select max(id) as revision, case when isfinite(max(ts)) then clock_timestamp() - max(ts) end as age
from :GRAPHILE_WORKER_SCHEMA.migrations
