-- Ready jobs that wait because their task or their queue is paused, for a worker that drains the queue. Scans the jobs
-- table.
--
-- $1 text[]       identifiers of the worker's tasks
-- $2 text[]       identifiers of paused tasks; empty for every task
-- $3 timestamptz  the current time, or null for the server's
-- Returns queue_name (null unless the queue is paused), task_identifier (null if it is) and jobs.
select
  pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name,
  case when queue.id is null then task.identifier end as task_identifier,
  count(*) as jobs
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  on queue.id = job.job_queue_id and queue.locked_by = 'py:hold'
where job.is_available and job.run_at <= coalesce($3::timestamptz, now())
  and task.identifier = any ($1::text[])
  and (queue.id is not null or '' = any ($2::text[]) or task.identifier = any ($2::text[]))
group by 1, 2
order by 1, 2
