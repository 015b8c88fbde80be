-- Create the schema. Run only when it is missing: the statement asks for a right that the owner of a prepared
-- schema need not have.
create schema :GRAPHILE_WORKER_SCHEMA
