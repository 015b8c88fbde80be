-- All that is known of one job, in one row: what is in the queue, its last row in the history, and the errors of its attempts.
--
-- $1 bigint  job id
-- Returns no row if there is nothing.
with job as (
  select job.*, task.identifier
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
  where job.id = $1::bigint
),
ended as (
  select history.*, coalesce(name.identifier, task.identifier) as identifier
  from :GRAPHILE_WORKER_SCHEMA._private_py_history history
:include finished_names
  where history.job_id = $1::bigint
  order by history.finished_at desc
  limit 1
),
failed as (
  select
    pg_catalog.json_agg(
      pg_catalog.json_build_object(
        'error_type', error.error_type, 'message', error.message, 'traceback', error.traceback,
        'pool_id', error.pool_id, 'failed_at', date_part('epoch', error.failed_at), 'duration', error.duration
      ) order by error.failed_at, error.attempt
    )::text as errors
  from :GRAPHILE_WORKER_SCHEMA._private_py_errors error
  where error.job_id = $1::bigint
)
select
  job.id is not null as is_in_queue,
  coalesce(job.identifier, ended.identifier) as task_identifier,
  coalesce(job.payload::text, ended.payload::text) as payload,
  coalesce(job.priority, ended.priority)::integer as priority,
  date_part('epoch', coalesce(job.created_at, ended.created_at)) as created_at,
  date_part('epoch', coalesce(job.run_at, ended.run_at)) as run_at,
  job.attempts >= job.max_attempts as is_last_attempt,
  date_part('epoch', job.locked_at) as locked_at,
  job.locked_by,
  job.last_error,
  ended.state,
  date_part('epoch', ended.started_at) as started_at,
  date_part('epoch', ended.finished_at) as finished_at,
  ended.pool_id,
  ended.result::text as result,
  ended.error,
  failed.errors
from failed
left join job on true
left join ended on true
where job.id is not null or ended.job_id is not null
