-- Delete worker pools that have been unreachable for their whole grace.
--
-- $1 text[]  pool ids
-- Returns the deleted ids. A pool whose heartbeat has just arrived stays.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_workers
where id = any ($1::text[]) and lost_at <= now() - grace
returning id
