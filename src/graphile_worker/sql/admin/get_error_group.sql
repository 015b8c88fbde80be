-- One group of errors, with the columns of history/list_error_groups.
-- $1 fingerprint.
select
  known.fingerprint, coalesce(name.identifier, task.identifier, '') as task_identifier, known.error_type, known.message,
  known.place, known.first_at, known.last_at, known.errors, known.permanent, known.last_job_id, known.first_version,
  known.last_version
from :GRAPHILE_WORKER_SCHEMA._private_py_error_groups known
left join :GRAPHILE_WORKER_SCHEMA._private_py_task_names name on name.id = known.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = known.task_id
where known.fingerprint = $1::text
