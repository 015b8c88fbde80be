-- Jobs that were cancelled while a worker had them locked and that have ended otherwise since: they failed or were recovered
-- before their worker knew, or ran in another runtime. Forgets the cancels of jobs that are gone.
--
-- $1 integer  how many jobs at most
-- Returns the jobs' columns in the order of Job.
with forgotten as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel
  where not exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = cancel.job_id)
)
select
:include job_columns
  coalesce((
    select task.identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks task where task.id = job.task_id
  ), '') as task_identifier
from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel
join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = cancel.job_id
where job.locked_at is null
order by job.id
limit $1::integer
