-- Permanent failures that a handler must be told of.

-- statement: follow_failures
-- Note that these tasks have a handler for permanent failures. Only failures from now on are told, also if a task had
-- a handler once and none for a week or longer.
--
-- $1 text[]  task identifiers
insert into :GRAPHILE_WORKER_SCHEMA._private_py_failure_handlers as handler (task)
select task from pg_catalog.unnest($1::text[]) as handled (task)
order by task
on conflict (task) do update
set
  since = case when handler.checked_at < now() - interval '7 days' then now() else handler.since end,
  checked_at = now()

-- statement: unnotified_failures
-- Permanent failures that no handler was told of: those of other runtimes, and those by hand. They count as told.
-- A job that was cancelled while it ran has not failed; see control/leftover_cancels.
--
-- $1 text[]   task identifiers
-- $2 text     last_error of jobs that did not fail but cannot run again
-- $3 integer  at most this many
-- Returns the columns of each job and the task's identifier.
with failed as materialized (
  select
    job.id, job.task_id, handler.since, standing.failed_at
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
  join :GRAPHILE_WORKER_SCHEMA._private_py_failure_handlers handler on handler.task = task.identifier
:include back_off
:include standing
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
  , task.identifier
from marked
join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = marked.job_id
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
order by job.id

-- statement: purge_notified_failures
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
