-- Whether any job of a named queue is waiting, be it due or not.
select exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_jobs where is_available and job_queue_id is not null
)
