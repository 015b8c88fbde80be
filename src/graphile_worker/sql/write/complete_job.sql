-- Delete one finished job that is in no named queue; see complete_jobs for the condition.
--
-- $1 bigint  job id
-- $2 text    pool id
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = $1::bigint and (locked_by = $2::text or key is null)
