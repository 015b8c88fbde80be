-- Delete completed jobs of a held batch whose ids are close together: one index scan replaces a lookup for each.
--
-- $1 bigint[]  job ids
-- $2 bigint    the lowest of them
-- $3 bigint    the highest of them
-- `is true`: see complete_adjacent_jobs.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id between $2::bigint and $3::bigint
  and (id in (select pg_catalog.unnest($1::bigint[]))) is true
