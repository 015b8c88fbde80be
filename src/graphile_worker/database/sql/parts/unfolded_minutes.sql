  -- $1, $2 and $3: from, to and task, as for the hours.
  select
    minutes.minute, minutes.task, minutes.completed::bigint, minutes.failed::bigint, minutes.permanently_failed::bigint,
    minutes.run_seconds, minutes.wait_seconds, minutes.longest,
    minutes.run_times::bigint[], minutes.wait_times::bigint[]
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.pool_id <> ''
  and minutes.minute >= $1::timestamptz
  and minutes.minute < coalesce($2::timestamptz, 'infinity'::timestamptz)
  and ($3::text is null or minutes.task = $3::text)
