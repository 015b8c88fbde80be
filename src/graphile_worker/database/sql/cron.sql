-- Recurring jobs that are due.

-- statement: known_crontabs
-- What the database knows about recurring jobs.
-- Parameters: none.
-- Result: identifier, known_since, last_execution; one row per item that any worker ever had.
select identifier, known_since, last_execution
from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs;

-- statement: lock_crontabs
-- Lock the rows of recurring jobs before the jobs of several minutes are added in one transaction. The order is
-- always the same, so that workers that add the same jobs wait for each other and do not deadlock.
-- Parameters: $1 text[] identifiers.
-- Result: one row per known item.
select identifier
from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs
where identifier = any($1::text[])
order by identifier
for update;

-- statement: register_crontabs
-- Register new recurring jobs; known ones stay as they are.
-- Parameters: $1 text[] identifiers, $2 timestamptz known_since.
-- Result: none.
insert into :GRAPHILE_WORKER_SCHEMA._private_known_crontabs (identifier, known_since)
select distinct identifier, $2::timestamptz
from pg_catalog.unnest($1::text[]) as new_items (identifier)
order by identifier -- the same order in every worker, so that two of them cannot deadlock
on conflict do nothing;

-- statement: schedule_cron_jobs @registered
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
:include claimed_by_us
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

-- statement: schedule_unique_cron_jobs @registered
-- Add the recurring jobs of one minute that are unique by their arguments, unless another worker was first or there are
-- such jobs.
-- Parameters: see schedule_cron_jobs; $12 while which a job with the key counts, in place of job key modes.
-- Result: identifier and job_id of each job added or found, in the order of the arrays.
:include claimed_cron_jobs
, added as materialized (
  select ours.identifier, ours.position, (added_job.job).id as job_id
:include claimed_by_us
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

-- statement: server_time
-- The server's time, and recurring jobs that a wrong clock has added for a time in the future.
-- Parameters: $1 text[] identifiers, $2 interval how far ahead of the server a minute may be.
-- Result: one row with now, and one for each such item: identifier, last_execution.
select clock_timestamp() as now, known_crontabs.identifier, known_crontabs.last_execution
from (select) as always
left join :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs
  on known_crontabs.identifier = any($1::text[]) and known_crontabs.last_execution > clock_timestamp() + $2::interval
order by known_crontabs.identifier;

-- part: claimed_cron_jobs
-- Part of the statements that add the recurring jobs of one minute: claims the minute for its items.
with due as (
  select *
  from unnest(
    $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::text[], $12::text[]
  )
    with ordinality
    as due (
      identifier, task, payload, queue_name, run_at, delay, max_attempts, job_key, priority, flags, job_key_mode,
      position
    )
),
claimed as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs
    (identifier, known_since, last_execution)
  select distinct due.identifier, $1::timestamptz, $1::timestamptz
  from due
  order by due.identifier -- the same order in every worker, so that two of them cannot deadlock
  on conflict (identifier) do update
    set last_execution = excluded.last_execution
    where known_crontabs.last_execution is null
      or known_crontabs.last_execution < excluded.last_execution
  returning known_crontabs.identifier
)

-- part: claimed_by_us
  from (
    select due.*
    from due
    inner join claimed on claimed.identifier = due.identifier
    where due.task is not null
:include unpaused
    order by due.position
    offset 0 -- keeps the sort below the calls, so that jobs are added in this order
  ) as ours

-- part: unpaused
      -- The variant `registered` leaves out recurring jobs that are paused.

-- part: unpaused@registered
      and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses as pause
        where pause.identifier = due.identifier and (pause.until is null or pause.until > now())
      )

-- part: cron_results
-- End of the statements that add the recurring jobs of one minute. The variant `registered` also notes the runs.
select added.identifier, added.job_id from added order by added.position

-- part: cron_results@registered
-- End of the statements that add the recurring jobs of one minute: the runs are noted for those who look.
, noted as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_schedule_runs as run (identifier, job_ids, due_at)
  select added.identifier, array[max(added.job_id)], array[$1::timestamptz]
  from added
  where added.job_id is not null
  group by added.identifier
  order by added.identifier -- the same order in every worker, so that two of them cannot deadlock
  on conflict (identifier) do update set
    job_ids = (pg_catalog.array_cat(excluded.job_ids, run.job_ids))[1:20],
    due_at = (pg_catalog.array_cat(excluded.due_at, run.due_at))[1:20]
)
select added.identifier, added.job_id from added order by added.position
