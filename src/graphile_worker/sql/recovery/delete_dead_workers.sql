-- Delete worker pools that were out of reach for as long as they may be.
--
-- $1 text[]  pool ids
-- Returns the ids that are gone. One that showed itself in this moment stays.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_workers
where id = any ($1::text[]) and lost_at <= now() - grace
returning id
