-- Whether a job of a named queue may be next: one of the queues with waiting jobs is free, or there are too many to check.
waiting_queue (id) as (
  (
    select job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = waiting.id
)
