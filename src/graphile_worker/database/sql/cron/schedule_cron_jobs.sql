-- Add the recurring jobs of one minute, unless another worker was first.
-- The worker that moves an item's last_execution forward to this minute adds its job; an equal or later value
-- means that the minute has been dealt with. It is one statement, so a minute is added as a whole or not at all.
-- Parameters: $1 timestamptz the minute; $2 text[] identifiers of the items. Then arrays of texts with one element
--   for each job, or empty if no job has a value: $3 task identifiers, $4 payloads (JSON), $5 queue names, $6 run_at
--   and $7 delays from now in seconds (without either, a job is due at the minute), $8 max attempts, $9 job keys,
--   $10 priorities, $11 flags (each the text of an array), $12 job key modes. Items that were refused come last,
--   without a job: the minute is claimed for them, and nothing is added.
-- Result: identifier and job_id of each job added, in the order of the arrays.
:include claimed_cron_jobs
, added as materialized (
  select ours.identifier, ours.position, job.id as job_id
  from (
    select due.*
    from due
    inner join claimed on claimed.identifier = due.identifier
    where due.task is not null
:include unpaused
    order by due.position
    offset 0 -- keeps the sort below the calls, so that jobs are added in this order
  ) as ours
  cross join lateral :GRAPHILE_WORKER_SCHEMA.add_job(
    identifier => ours.task,
    payload => ours.payload::json,
    queue_name => ours.queue_name,
    run_at => coalesce(
      ours.run_at::timestamptz, now() + pg_catalog.make_interval(secs => ours.delay::float8), $1::timestamptz
    ),
    max_attempts => ours.max_attempts::integer,
    job_key => ours.job_key,
    priority => ours.priority::integer,
    flags => ours.flags::text[],
    job_key_mode => ours.job_key_mode
  ) as job
)
:include cron_results
