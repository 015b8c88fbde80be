-- Add the recurring jobs of one minute that are unique by their arguments, unless another worker was first or there are
-- such jobs.
-- Parameters: see schedule_cron_jobs; $12 while which a job with the key counts, in place of job key modes.
-- Result: identifier and job_id of each job added or found, in the order of the arrays.
:include claimed_cron_jobs
, added as materialized (
  select ours.identifier, ours.position, (added_job.job).id as job_id
  from (
    select due.*
    from due
    inner join claimed on claimed.identifier = due.identifier
    where due.task is not null
:include unpaused
    order by due.position
    offset 0 -- keeps the sort below the calls, so that jobs are added in this order
  ) as ours
  cross join lateral :GRAPHILE_WORKER_SCHEMA._private_py_add_unique_job(
    ours.task,
    ours.payload::json,
    ours.queue_name,
    coalesce(
      ours.run_at::timestamptz, now() + pg_catalog.make_interval(secs => ours.delay::float8), $1::timestamptz
    ),
    ours.max_attempts::integer,
    ours.job_key,
    ours.priority::integer,
    ours.flags::text[],
    ours.job_key_mode,
    true
  ) as added_job
)
:include cron_results
