  -- The sums of all rows of `counted`. One sum for each of the 28 buckets is several times as fast as `unnest`. Buckets
  -- that no row has are null, and only at the end.
  sum(counted.completed)::bigint as completed,
  sum(counted.failed)::bigint as failed,
  sum(counted.permanently_failed)::bigint as permanently_failed,
  sum(counted.run_seconds) as run_seconds,
  sum(counted.wait_seconds) as wait_seconds,
  max(counted.longest) as longest,
  pg_catalog.array_remove(array[
    sum(counted.run_times[1])::bigint, sum(counted.run_times[2])::bigint, sum(counted.run_times[3])::bigint, sum(counted.run_times[4])::bigint,
    sum(counted.run_times[5])::bigint, sum(counted.run_times[6])::bigint, sum(counted.run_times[7])::bigint, sum(counted.run_times[8])::bigint,
    sum(counted.run_times[9])::bigint, sum(counted.run_times[10])::bigint, sum(counted.run_times[11])::bigint, sum(counted.run_times[12])::bigint,
    sum(counted.run_times[13])::bigint, sum(counted.run_times[14])::bigint, sum(counted.run_times[15])::bigint, sum(counted.run_times[16])::bigint,
    sum(counted.run_times[17])::bigint, sum(counted.run_times[18])::bigint, sum(counted.run_times[19])::bigint, sum(counted.run_times[20])::bigint,
    sum(counted.run_times[21])::bigint, sum(counted.run_times[22])::bigint, sum(counted.run_times[23])::bigint, sum(counted.run_times[24])::bigint,
    sum(counted.run_times[25])::bigint, sum(counted.run_times[26])::bigint, sum(counted.run_times[27])::bigint, sum(counted.run_times[28])::bigint
  ], null) as run_times,
  pg_catalog.array_remove(array[
    sum(counted.wait_times[1])::bigint, sum(counted.wait_times[2])::bigint, sum(counted.wait_times[3])::bigint, sum(counted.wait_times[4])::bigint,
    sum(counted.wait_times[5])::bigint, sum(counted.wait_times[6])::bigint, sum(counted.wait_times[7])::bigint, sum(counted.wait_times[8])::bigint,
    sum(counted.wait_times[9])::bigint, sum(counted.wait_times[10])::bigint, sum(counted.wait_times[11])::bigint, sum(counted.wait_times[12])::bigint,
    sum(counted.wait_times[13])::bigint, sum(counted.wait_times[14])::bigint, sum(counted.wait_times[15])::bigint, sum(counted.wait_times[16])::bigint,
    sum(counted.wait_times[17])::bigint, sum(counted.wait_times[18])::bigint, sum(counted.wait_times[19])::bigint, sum(counted.wait_times[20])::bigint,
    sum(counted.wait_times[21])::bigint, sum(counted.wait_times[22])::bigint, sum(counted.wait_times[23])::bigint, sum(counted.wait_times[24])::bigint,
    sum(counted.wait_times[25])::bigint, sum(counted.wait_times[26])::bigint, sum(counted.wait_times[27])::bigint, sum(counted.wait_times[28])::bigint
  ], null) as wait_times
