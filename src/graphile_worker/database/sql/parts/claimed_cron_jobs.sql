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
