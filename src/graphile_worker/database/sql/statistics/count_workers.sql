-- How many worker pools of this package there are, and how busy they are, by their last heartbeats.
--
-- $1 text  name of the schema
-- Returns alive and unreachable (pools), and of the pools that are alive: slots, held (jobs that they have locked) and
-- running (jobs that they run; a pool reports 200 at most).
with
:include workers_with_liveness
select
  count(*) filter (where worker.is_alive) as alive,
  count(*) filter (where not worker.is_alive) as unreachable,
  coalesce(sum(worker.concurrency) filter (where worker.is_alive), 0::bigint) as slots,
  -- By name, because the columns are missing until own_objects/0007_running_jobs is applied.
  coalesce(
    sum((pg_catalog.to_jsonb(worker) ->> 'jobs_held'::text)::integer) filter (where worker.is_alive), 0::bigint
  ) as held,
  coalesce(
    sum(pg_catalog.jsonb_array_length(running.jobs)) filter (where worker.is_alive), 0::bigint
  ) as running
from worker
left join lateral (
  select pg_catalog.to_jsonb(worker) -> 'running'::text as jobs
) as running on pg_catalog.jsonb_typeof(running.jobs) = 'array'::text
