-- Waiting jobs of some queues, counted up to a limit. Needs own_objects/0002_queue_indexes.
--
-- $1 integer[]  queue ids
-- $2 integer    how many jobs of each are counted at most
-- Returns id and jobs.
select wanted.id, depth.jobs
from pg_catalog.unnest($1::integer[]) as wanted (id)
cross join lateral (
  select count(*) as jobs
  from (
    select 1 as one
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.is_available and jobs.job_queue_id is not null and jobs.job_queue_id = wanted.id
    order by jobs.priority, jobs.run_at
    limit $2::integer
  ) as counted
) as depth
