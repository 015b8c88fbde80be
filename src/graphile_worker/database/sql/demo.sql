-- For `graphile-worker demo`: two hours for the charts, before anything has happened.

-- statement: write_minutes
-- Statistics of jobs that have succeeded.
--
-- $1 text[]              tasks
-- $2 double precision[]  how many jobs of each task complete per minute
-- $3 double precision[]  their run time in seconds
-- $4 integer[]           the bucket of this time in a histogram
insert into :GRAPHILE_WORKER_SCHEMA._private_py_minutes (
  minute, task, pool_id, completed, failed, permanently_failed, run_seconds, wait_seconds, longest, run_times, wait_times
)
select
  date_trunc('minute'::text, now()) - ago::double precision * interval '1 minute',
  task, ''::text, completed::integer, 0, 0, completed * seconds, completed * 0.01::double precision,
  2.0::double precision * seconds,
  pg_catalog.array_append(pg_catalog.array_fill(0, array[bucket]), completed::integer),
  pg_catalog.array_append(pg_catalog.array_fill(0, array[7]), completed::integer)
from
  pg_catalog.generate_series(1, 120) as ago,
  unnest($1::text[], $2::double precision[], $3::double precision[], $4::integer[])
    as tasks (task, per_minute, seconds, bucket),
  lateral (
    select ceil(
      per_minute
      * (0.9::double precision + 0.2::double precision * sin(ago::double precision / 8::double precision) * random())
    )
  ) as jobs (completed)

-- statement: write_samples
-- Samples of the backlog. The counters end at zero, where those of the new table begin.
--
-- $1 double precision  how many jobs are added and completed per minute
insert into :GRAPHILE_WORKER_SCHEMA._private_py_samples (
  at, added, deleted, updated, live, ready, scheduled, failed, is_estimate, oldest_wait
)
select
  now() - ago::double precision * interval '1 minute', total, total, 0, 30,
  20::bigint + floor(20::double precision * random())::bigint, 10, 0, false,
  50::double precision + 10::double precision * random()
from
  pg_catalog.generate_series(1, 120) as ago,
  lateral (select (- $1::double precision * ago::double precision)::bigint) as counters (total)
