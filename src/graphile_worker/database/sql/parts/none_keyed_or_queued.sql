-- In place of `keyed` and `free_queues`: any job with a key or of a named queue may be next.
first_keyed (place) as (select null::text),
last_keyed (priority, run_at) as materialized (
  select (-32768)::smallint, '-infinity'::timestamptz
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.is_available and job.job_queue_id is null and job.key is not null
  order by job.task_id, job.priority -- by the index, whatever the statistics say
  limit 1
),
queues (may_be_next) as materialized (
  select exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null
    order by job.job_queue_id limit 1
  )
)
