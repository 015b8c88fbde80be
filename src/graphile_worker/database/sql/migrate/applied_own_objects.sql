-- The numbers of the Python-only objects that were applied.
-- Result: rows with id (integer).
select id from :GRAPHILE_WORKER_SCHEMA._private_py_migrations
