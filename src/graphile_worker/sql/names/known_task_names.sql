-- Every task name that a job was ever added for or a worker registered, until a clean-up deletes it.
--
-- Returns identifier.
select identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks
