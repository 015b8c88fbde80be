-- The ids of task identifiers.
--
-- $1 text[]  task identifiers
-- Returns id, identifier.
select id, identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = any ($1::text[])
