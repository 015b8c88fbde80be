-- Part of every statement that looks for jobs with a key: the tasks and priorities of those that wait without a queue, by
-- one index probe each. Whether they are due, and whether this worker has the task, does not matter here, so there may be
-- many: statements stop after 50.
keyed_step (task_id, priority) as (
  (
    select job.task_id, job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.key is not null
    order by job.task_id, job.priority limit 1
  )
  union all
  select next.task_id, next.priority
  from keyed_step last cross join lateral (
    select job.task_id, job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.key is not null
      and (job.task_id, job.priority) > (last.task_id, last.priority)
    order by job.task_id, job.priority limit 1
  ) next
),
