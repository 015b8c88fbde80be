-- Add statistics to a row that exists; the table is called `total`. Arrays of different lengths are added from the left.
do update set
  completed = total.completed + excluded.completed,
  failed = total.failed + excluded.failed,
  permanently_failed = total.permanently_failed + excluded.permanently_failed,
  run_seconds = total.run_seconds + excluded.run_seconds,
  wait_seconds = total.wait_seconds + excluded.wait_seconds,
  longest = greatest(total.longest, excluded.longest),
  run_times = (
    select pg_catalog.array_agg(coalesce(each.old, 0) + coalesce(each.new, 0) order by each.bucket)
    from unnest(total.run_times, excluded.run_times) with ordinality as each (old, new, bucket)
  ),
  wait_times = (
    select pg_catalog.array_agg(coalesce(each.old, 0) + coalesce(each.new, 0) order by each.bucket)
    from unnest(total.wait_times, excluded.wait_times) with ordinality as each (old, new, bucket)
  )
