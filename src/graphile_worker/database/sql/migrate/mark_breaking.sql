-- Mark the revisions of an older ledger that were breaking.
-- Parameters: $1 their numbers (integer[]).
update :GRAPHILE_WORKER_SCHEMA.migrations set breaking = true where id = any ($1::integer[])
