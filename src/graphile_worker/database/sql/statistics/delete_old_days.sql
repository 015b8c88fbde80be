-- Delete days that are older than they are kept.
--
-- $1 interval  how long
delete from :GRAPHILE_WORKER_SCHEMA._private_py_days
where day < now() - $1::interval
