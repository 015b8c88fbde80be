-- Lock jobs of a held batch as a fetch would have done: they outlast the batch.
--
-- $1 text         pool id
-- $2 bigint[]     job ids
-- $3 timestamptz  the worker's time, or null for the server's
update :GRAPHILE_WORKER_SCHEMA._private_jobs
set attempts = attempts + 1, locked_by = $1::text, locked_at = coalesce($3::timestamptz, now())
where id = any ($2::bigint[])
