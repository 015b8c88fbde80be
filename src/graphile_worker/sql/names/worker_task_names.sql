-- The task identifiers of the registered pools of this package.
--
-- Returns identifier.
select distinct pg_catalog.unnest(tasks) as identifier from :GRAPHILE_WORKER_SCHEMA._private_py_workers
