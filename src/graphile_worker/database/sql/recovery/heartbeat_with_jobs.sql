-- A worker pool's heartbeat, with a report of its jobs. Needs own_objects/0007_running_jobs.
--
-- $1 to $3               as in heartbeat
-- $4 integer             number of jobs that the pool has locked
-- $5 bigint[]            ids of running jobs
-- $6 double precision[]  seconds since each was started
-- Returns what heartbeat returns.
update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
set
  last_seen_at = now(),
  lost_at = null,
  liveness = $2,
  backend_pid = $3,
  jobs_held = $4,
  running = coalesce(
    (
      select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_array(job.id, date_part('epoch', now()) - job.age) order by job.age desc, job.id
      )
      from unnest($5::bigint[], $6::double precision[]) as job (id, age)
    ),
    '[]'
  )
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
where worker.id = $1::text
returning pg_backend_pid() as pid, date_part('epoch', clock_timestamp()) as server_time
