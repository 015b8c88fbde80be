-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
plain_priority (priority) as (
  (
    select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
