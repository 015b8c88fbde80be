-- Which of some jobs are running in some queues.
--
-- $1 bigint[]   job ids
-- $2 integer[]  queue ids
-- Returns id, task, locked_by, locked_at (seconds since 1970).
select job.id, task.identifier as task, job.locked_by, date_part('epoch', job.locked_at) as locked_at
from pg_catalog.unnest($1::bigint[]) as wanted (id)
cross join lateral (
  select id, task_id, job_queue_id, locked_by, locked_at
  from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = wanted.id
  limit 1 -- keeps the planner from reading the whole table once
) job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
where job.job_queue_id = any ($2::integer[]) and job.locked_at is not null
order by job.locked_at
