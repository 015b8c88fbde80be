-- Forget failures of jobs that are gone or may run again.
--
-- $1 integer  at most this many
with old as (
  select told.job_id
  from :GRAPHILE_WORKER_SCHEMA._private_py_told_failures told
  where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = told.job_id and not job.is_available
  )
  limit $1::integer
  for update skip locked
)
delete from :GRAPHILE_WORKER_SCHEMA._private_py_told_failures told
using old
where told.job_id = old.job_id
