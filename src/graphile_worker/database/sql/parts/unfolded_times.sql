  -- $1, $2 and $4: from, to and task, as for the hours.
  select
    minutes.minute, minutes.task, minutes.longest, minutes.run_times::bigint[], minutes.wait_times::bigint[]
  from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
  where minutes.pool_id <> ''
  and minutes.minute >= $1::timestamptz
  and minutes.minute < $2::timestamptz
  and ($4::text is null or minutes.task = $4::text)
