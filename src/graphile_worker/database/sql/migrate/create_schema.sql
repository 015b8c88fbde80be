-- Create the schema. Run only when it is missing: the statement needs a permission that the owner of an existing
-- schema may lack.
create schema :GRAPHILE_WORKER_SCHEMA
