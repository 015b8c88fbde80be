-- A fresh install found our ledger of an earlier schema: what it lists went with the tables it was made on.
-- Result: none.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_migrations
