-- A worker pool has ended and holds nothing any more.
--
-- $1 text  pool id
delete from :GRAPHILE_WORKER_SCHEMA._private_py_workers where id = $1
