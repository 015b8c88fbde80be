-- When the next job becomes due that is not due yet.
--
-- $1 text[]       identifiers of the tasks whose jobs count
-- $2 timestamptz  the time to go by
-- Returns one row; null if nothing waits.
select min(job.run_at)
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
where job.is_available and task.identifier = any ($1::text[]) and job.run_at > $2::timestamptz
