-- Delete finished jobs that are in no named queue.
--
-- $1 bigint[]  job ids
-- $2 text      pool id
-- Returns no row if all were deleted; else one with the ids of those that were not.
-- Hardly guarded by the lock: completion means that the work was done, whoever holds the job by now. But a job with a
-- key that this pool lost may have got another payload since, and that work was not done.
with completed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($1::bigint[]) and (locked_by = $2::text or key is null)
  returning id
)
select array(select pg_catalog.unnest($1) except select id from completed) as missing
where (select count(*) from completed) < pg_catalog.cardinality($1)
