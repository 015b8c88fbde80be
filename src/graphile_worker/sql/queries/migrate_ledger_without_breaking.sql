-- How far a ledger has come that was written before breaking revisions were marked.
-- Result: one row: revision (integer, null when empty), age (interval since the last row).
select max(id) as revision, clock_timestamp() - max(ts) as age
from :GRAPHILE_WORKER_SCHEMA.migrations
