-- Delete a large number of completed jobs whose ids are close together. Like complete_adjacent_jobs, but does not report
-- which were missing: to return each row takes a third more time. The caller compares the number of deleted rows; if some
-- are missing, it rolls back and runs complete_adjacent_jobs.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- $3 bigint    the lowest of them
-- $4 bigint    the highest of them
-- `is true`: see complete_adjacent_jobs.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id between $3::bigint and $4::bigint
  and (id in (select pg_catalog.unnest($2::bigint[]))) is true
  and (locked_by = $1::text or key is null)
