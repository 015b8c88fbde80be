-- The numbers of our own extensions that were applied.
-- Result: rows with id (integer).
select id from :GRAPHILE_WORKER_SCHEMA._private_py_migrations
