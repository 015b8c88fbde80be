-- Remove the row of a worker pool that has shut down and holds nothing.
--
-- $1 text  pool id
delete from :GRAPHILE_WORKER_SCHEMA._private_py_workers where id = $1::text
