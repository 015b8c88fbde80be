-- How jobs stand: the row of each, if it still exists, and its latest row in the history, if it was kept.
--
-- $1 bigint[]  job ids
-- Returns job_id, state, error, attempts, result: the state is `pending` for a job that is waiting or running, and `gone`
-- for one that has neither. A permanently failed job is `failed`, whether that was kept or not.
select
  wanted.job_id,
  case
    when job.id is not null and (job.locked_at is not null or job.is_available) then 'pending'
    when job.id is not null then 'failed'
    else coalesce(last_finished.state, 'gone')
  end as state,
  coalesce(job.last_error, last_finished.error) as error,
  coalesce(job.attempts, last_finished.attempts) as attempts,
  last_finished.result
from pg_catalog.unnest($1::bigint[]) as wanted (job_id)
left join lateral (
  select id, locked_at, is_available, last_error, attempts
  from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = wanted.job_id
  limit 1 -- keeps the planner from reading the whole table once
) job on true
left join lateral (
  select state, error, attempts, result::text as result
  from :GRAPHILE_WORKER_SCHEMA._private_py_history
  where job_id = wanted.job_id and job.id is null
  order by date_part('epoch', finished_at) desc -- not the column, whose index would be read to its end
  limit 1
) last_finished on true
