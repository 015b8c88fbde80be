-- The tasks of some jobs.
--
-- $1 bigint[]  job ids
-- Returns id, task.
select job.id, task.identifier as task
from pg_catalog.unnest($1::bigint[]) as wanted (id)
cross join lateral (
  select id, task_id from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = wanted.id
  limit 1 -- keeps the planner from reading the whole table once
) job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
