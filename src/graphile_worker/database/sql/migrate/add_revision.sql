-- Add a row to the shared ledger. Its primary key serialises the installers of all runtimes.
-- Parameters: $1 revision (integer), $2 whether it is breaking (boolean).
insert into :GRAPHILE_WORKER_SCHEMA.migrations (id, breaking) values ($1::integer, $2::boolean)
