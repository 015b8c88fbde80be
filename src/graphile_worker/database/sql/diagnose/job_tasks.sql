-- The tasks of these jobs, for the doctor.
-- $1 bigint[]  job ids
-- Returns id and task_identifier of those that exist.
select jobs.id, coalesce(tasks.identifier, '') as task_identifier
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = jobs.task_id
where jobs.id = any ($1::bigint[])
