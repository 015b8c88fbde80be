-- Delete the progress of jobs that dead workers left behind.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_progress progress
where progress.updated_at < now() - interval '1 minute'
  and not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = progress.job_id and job.locked_at is not null
  )
