-- Lock rows that a held batch has locked: `for key share` is compatible with the lock of a held batch and with no other
-- fetch. So no ordinary fetch can take them when the session of the batch ends.
--
-- $1 bigint[]  job ids
select id from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = any ($1::bigint[]) and locked_at is null
for key share skip locked
