-- The same as states_of_jobs where there is no history.
--
-- $1 bigint[]  job ids
select
  wanted.job_id,
  case
    when job.id is null then 'gone'
    when job.locked_at is not null or job.is_available then 'pending'
    else 'failed'
  end as state,
  job.last_error as error,
  job.attempts,
  null::text as result
from pg_catalog.unnest($1::bigint[]) as wanted (job_id)
left join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = wanted.job_id
