-- The tasks of some jobs, by id.
--
-- $1 bigint[]  ids
-- Returns id, task_identifier, locked_by, and locked_at in seconds since 1970, for the jobs that exist and are locked.
select
  jobs.id, coalesce(tasks.identifier, '') as task_identifier, jobs.locked_by,
  date_part('epoch', jobs.locked_at) as locked_at
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = jobs.task_id
where jobs.id = any ($1::bigint[])
and jobs.locked_at is not null
