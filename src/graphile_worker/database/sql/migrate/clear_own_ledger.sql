-- Clear the ledger of Python-only objects after a fresh install: what it lists was dropped with the old tables.
-- Result: none.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_migrations
