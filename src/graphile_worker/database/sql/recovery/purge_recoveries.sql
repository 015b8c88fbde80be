-- Delete recovery counters of jobs that no longer exist.
-- Returns the number of rows.
with gone as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_recoveries recovery
  where not exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = recovery.job_id)
  returning job_id
)
select count(*) from gone
