-- The jobs that dead worker pools have locked.
--
-- $1 text[]  pool ids
-- Returns the columns of a job, the task's identifier, recoveries (how often the job was recovered before) and counts
-- (whether this recovery counts: the first always does; later ones only if the job is known to have been started, so
-- that a prefetched job is not blamed for another one).
select
:include job_columns
  task.identifier,
  coalesce(recovery.recoveries, 0) as recoveries,
  recovery.job_id is null or recovery.started_by is not distinct from job.locked_by as counts
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_py_recoveries recovery on recovery.job_id = job.id
where job.locked_by = any ($1::text[])
order by job.id
