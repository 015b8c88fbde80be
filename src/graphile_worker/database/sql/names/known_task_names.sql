-- Every task identifier that jobs or workers have registered, until a cleanup deletes it.
--
-- Returns identifier.
select identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks
