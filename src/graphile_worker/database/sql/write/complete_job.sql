-- Delete one completed job without a named queue. Fast path of complete_jobs; see parts/completed for the condition.
--
-- $1 text    pool id
-- $2 bigint  job id
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = $2::bigint and (locked_by = $1::text or key is null)
