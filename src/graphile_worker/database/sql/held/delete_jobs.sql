-- Delete completed jobs of a held batch, whose rows this transaction has locked.
--
-- $1 bigint[]  job ids
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = any ($1::bigint[])
