-- Remove pools that have ended from the Rust port's table of workers.
--
-- $1 text[]  pool ids
delete from :GRAPHILE_WORKER_SCHEMA._private_workers where id = any ($1::text[])
