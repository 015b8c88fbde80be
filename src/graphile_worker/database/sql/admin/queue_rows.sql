-- What is known of some queues. Needs own_objects/0002_queue_indexes.
--
-- $1 integer[]  queue ids
-- $2 integer    how many jobs of each are counted at most
-- Returns, in the order of the ids, queue_name, locked_by, locked_at (seconds since 1970), jobs, ready, and oldest (run_at
-- of the oldest job counted that is ready, in seconds since 1970).
select
  queue.id,
  queue.queue_name,
  queue.locked_by,
  date_part('epoch', queue.locked_at) as locked_at,
  depth.jobs,
  depth.ready,
  date_part('epoch', depth.oldest) as oldest
from pg_catalog.unnest($1::integer[]) with ordinality as wanted (id, position)
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = wanted.id
cross join lateral (
  select
    count(*) as jobs,
    count(*) filter (where counted.run_at <= now()) as ready,
    min(counted.run_at) filter (where counted.run_at <= now()) as oldest
  from (
    select job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id = queue.id
    order by job.priority, job.run_at
    limit $2::integer
  ) counted
) depth
order by wanted.position
