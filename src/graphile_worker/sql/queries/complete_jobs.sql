-- Delete finished jobs that are in no named queue.
--
-- $1 bigint[]  job ids
-- $2 text      pool id
-- Hardly guarded by the lock: completion means that the work was done, whoever holds the job by now. But a job with a
-- key that this pool lost may have got another payload since, and that work was not done.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = any ($1::bigint[]) and (locked_by = $2::text or key is null)
