-- Delete very many finished jobs whose ids lie close together: complete_adjacent_jobs without saying which were missing,
-- since to return each row would take a third more time. The caller compares the number of deleted rows, and does it
-- again in the other way if there are less than expected.
--
-- $1 bigint[]  job ids
-- $2 text      pool id
-- $3 bigint    the lowest of the ids
-- $4 bigint    the highest of them
-- `is true` keeps the list a hash table that is looked into; a join would be planned as one search per id again.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id between $3::bigint and $4::bigint
  and (id in (select pg_catalog.unnest($1::bigint[]))) is true
  and (locked_by = $2::text or key is null)
