-- Delete finished jobs and free their named queues: what write_outcomes does if none failed and no queue goes on.
--
-- $1 bigint[]  job ids
-- $2 text      pool id
-- Returns no row if all were deleted; else one with the ids of those that were not.
with completed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($1::bigint[]) and (locked_by = $2::text or key is null)
  returning id, job_queue_id
),
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $2
    and queue.id = any (array(select job_queue_id from completed where job_queue_id is not null))
)
select array(select pg_catalog.unnest($1) except select id from completed) as missing
where (select count(*) from completed) < pg_catalog.cardinality($1)
