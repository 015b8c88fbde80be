-- What is kept, and until when.

-- part: expires_on
  -- The last day, UTC, of what is kept from `kept_at` for `keep_seconds`. Long times end with a week or a month, so that
  -- rows with any retention share a bounded number of partitions.
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end

-- part: folded_until
-- The end of the last day that is folded; the statistics of later ones are in the hours.
folded as (
  select coalesce(max(days.day) + '24:00:00'::interval, '-infinity'::timestamptz) as until
  from :GRAPHILE_WORKER_SCHEMA._private_py_days as days
)

-- part: summed_columns
    -- Sums of minutes, for an hour or a day.
    completed bigint not null,
    failed bigint not null,
    permanently_failed bigint not null,
    run_seconds double precision not null,
    wait_seconds double precision not null,
    longest double precision not null,
    run_times bigint[] not null,
    wait_times bigint[] not null,

-- part: kept_end
-- Part of the statements that keep completed jobs: `kept` has the rows that were deleted, and how they are kept. The time is
-- that of the statement, because a held batch began earlier.
kept_end as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, started_at,
    finished_at, duration, pool_id, flags, payload, result, expires_on
  )
  select
    id, task_id, state,
:include queue_name
    , key, priority, attempts, max_attempts, created_at, run_at, kept_at - interval '1 second' * seconds,
    kept_at, seconds, $1::text, flags, payload, result::json,
:include expires_on
  from (select kept.*, statement_timestamp() as kept_at from kept) job
),
