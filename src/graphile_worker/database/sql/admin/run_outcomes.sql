-- What became of some jobs. The variant `unkept` is for a schema without a history.
--
-- $1 bigint[]  job ids
-- Returns job_id, state (as the row or the history says; gone if neither does), finished_at (seconds since 1970), duration (of
-- the last attempt, in seconds), error (its first characters).
select
  wanted.job_id,
  case
    when job.id is null then coalesce(last_finished.state, 'gone')
    when job.locked_at is not null then 'locked'
    when not job.is_available then 'failed'
    when job.attempts > 0 then 'retry'
    when job.run_at <= now() then 'ready'
    else 'scheduled'
  end as state,
  date_part('epoch', last_finished.finished_at) as finished_at,
  last_finished.duration,
  pg_catalog.left(coalesce(job.last_error, last_finished.error), 500) as error
from pg_catalog.unnest($1::bigint[]) as wanted (job_id)
left join lateral (
  select id, locked_at, is_available, attempts, run_at, last_error
  from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = wanted.job_id
  limit 1 -- keeps the planner from reading the whole table once
) job on true
:include last_finished
