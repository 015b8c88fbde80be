-- Add the recurring jobs of one minute, unless another worker was first.
-- Whoever moves an item's last_execution forward to this minute adds its job; an equal or later value there
-- means that the job exists already. All of it is one statement, so a minute is added whole or not at all.
-- Parameters: $1 timestamptz the minute; then arrays with one element for each item: $2 text[] identifiers,
--   $3 text[] tasks, $4 text[] payloads (JSON), $5 text[] queue names, $6 int[] max attempts, $7 text[] job keys,
--   $8 int[] priorities, $9 text[] job key modes.
-- Result: identifier and job_id of each job added, in the order of the arrays.
with due as (
  select *
  from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[], $8::int[], $9::text[])
    with ordinality
    as due (identifier, task, payload, queue_name, max_attempts, job_key, priority, job_key_mode, position)
),
claimed as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_known_crontabs as known_crontabs
    (identifier, known_since, last_execution)
  select distinct due.identifier, $1::timestamptz, $1::timestamptz
  from due
  order by due.identifier -- the same order in every worker: no deadlock
  on conflict (identifier) do update
    set last_execution = excluded.last_execution
    where known_crontabs.last_execution is null
      or known_crontabs.last_execution < excluded.last_execution
  returning known_crontabs.identifier
)
select ours.identifier, job.id as job_id
from (
  select due.*
  from due
  inner join claimed on claimed.identifier = due.identifier
  order by due.position
  offset 0 -- keeps the sort below the calls, so that jobs are added in this order
) as ours
cross join lateral :GRAPHILE_WORKER_SCHEMA.add_job(
  identifier => ours.task,
  payload => ours.payload::json,
  queue_name => ours.queue_name,
  run_at => $1::timestamptz,
  max_attempts => ours.max_attempts,
  job_key => ours.job_key,
  priority => ours.priority,
  job_key_mode => ours.job_key_mode
) as job;
