-- Delete finished jobs that are in no named queue.
--
-- $1 bigint[]  job ids
-- Not guarded by the lock: completion means that the work was done, whoever holds the job by now.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = any ($1::bigint[])
