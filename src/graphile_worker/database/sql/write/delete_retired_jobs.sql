-- Delete obsolete jobs that this transaction has unlocked; see parts/retired.
--
-- $1 bigint[]  job ids
-- Returns the ids of the deleted jobs.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = any ($1::bigint[]) returning id
