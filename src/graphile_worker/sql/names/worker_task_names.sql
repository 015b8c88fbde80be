-- The names of the tasks that worker pools of this package have, as far as they are written down.
--
-- Returns identifier.
select distinct pg_catalog.unnest(tasks) as identifier from :GRAPHILE_WORKER_SCHEMA._private_py_workers
