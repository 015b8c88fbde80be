-- Permanent failures that no handler was told of: those of other runtimes, and those by hand. They count as told.
-- A job that was cancelled while it ran has not failed; see control/leftover_cancels.
--
-- $1 text[]   task identifiers
-- $2 text     last_error of jobs that did not fail but cannot run again
-- $3 integer  at most this many
-- Returns the columns of each job and the task's identifier.
with failed as materialized (
  select
    job.id, job.task_id, handler.since,
:include failed_at
    as failed_at
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
  join :GRAPHILE_WORKER_SCHEMA._private_py_failure_handlers handler on handler.task = task.identifier
  where not job.is_available and job.locked_at is null
    and task.identifier = any ($1::text[])
    and job.last_error is distinct from $2::text
    -- A job that was cancelled while another runtime ran it has not failed.
    and not exists (
      select from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancelled where cancelled.job_id = job.id
    )
),
unnotified as (
  select failed.id, failed.failed_at
  from failed
  where failed.failed_at > date_part('epoch', failed.since)
    and not exists (
      select from :GRAPHILE_WORKER_SCHEMA._private_py_told_failures told
      where told.job_id = failed.id and told.failed_at >= failed.failed_at - 0.001::double precision
    )
  order by failed.id
  limit $3::integer
),
marked as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_told_failures as told (job_id, failed_at)
  select unnotified.id, unnotified.failed_at from unnotified
  -- Another pool may have told it meanwhile.
  on conflict (job_id) do update set failed_at = excluded.failed_at
  where told.failed_at < excluded.failed_at - 0.001::double precision
  returning told.job_id
)
select
:include job_columns
  task.identifier
from marked
join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = marked.job_id
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
order by job.id
