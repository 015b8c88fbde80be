-- Groups of errors, the one that occurred last first.
--
-- $1 timestamptz  only groups with an error since then, or null
-- $2 text         only errors of this task, or null
-- $3 integer      at most this many
-- $4 timestamptz  only groups whose last error was before, or null
select
  known.fingerprint, coalesce(name.identifier, task.identifier, '') as task_identifier, known.error_type, known.message,
  known.place, known.first_at, known.last_at, known.errors, known.permanent, known.last_job_id, known.first_version,
  known.last_version
from :GRAPHILE_WORKER_SCHEMA._private_py_error_groups known
left join :GRAPHILE_WORKER_SCHEMA._private_py_task_names name on name.id = known.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = known.task_id
where known.last_at >= coalesce($1::timestamptz, '-infinity')
  and known.last_at < coalesce($4::timestamptz, 'infinity')
  and ($2::text is null or coalesce(name.identifier, task.identifier) = $2)
order by known.last_at desc
limit $3::integer
