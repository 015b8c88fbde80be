-- Part of ready_tasks and ready_tasks_above_watermarks: the same for jobs of named queues, and the counts of both.
queue_priority (priority) as (
  (
    select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is not null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority > last.priority
    order by job.priority limit 1
  )
  from queue_priority last where last.priority is not null
),
queued as materialized (
  select found.task_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.task_id, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority and job.run_at <= coalesce($3::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
    order by job.run_at
    limit $2::integer
  ) found
  limit $2
)
select task_id, priority, date_part('epoch', max(run_at)) as run_at, false as is_queued, count(*)::integer as jobs
from plain group by task_id, priority
union all
select task_id, priority, date_part('epoch', max(run_at)) as run_at, true as is_queued, count(*)::integer as jobs
from queued group by task_id, priority
