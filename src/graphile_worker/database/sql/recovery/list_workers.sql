-- Worker pools that are registered or, where the jobs table is scanned, have jobs locked.
--
-- $1 text     name of the schema
-- $2 boolean  whether to scan the jobs table whatever its size
-- $3 bigint   size in pages up to which it is scanned in any case: no index leads to locked jobs
-- Returns is_scanned and, for each pool, our own first: its registration and its last report (null for pools of other
-- runtimes), is_alive (null if unknown), remaining (seconds until an unreachable pool is declared dead), silent_for
-- (seconds since the last heartbeat, if two were missed), now (seconds since 1970), and the jobs that the scan found. One
-- row with a null id if there is no pool. Changes nothing, unlike mark_unreachable_workers.
with
scan as materialized (
  select
    $2::boolean
    or pg_catalog.pg_relation_size(class.oid) <= $3::bigint * pg_catalog.current_setting('block_size')::bigint as is_scanned
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where namespace.nspname = $1::text and class.relname = '_private_jobs'
),
held as (
  select locked_by as id, pg_catalog.array_agg(id order by id) as job_ids, min(locked_at) as locked_since
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where (select is_scanned from scan) and locked_by is not null
  group by locked_by
),
:include workers_with_liveness
select
  scan.is_scanned,
  id,
  worker.host, worker.pid, worker.version, worker.tasks, worker.concurrency, worker.liveness,
  date_part('epoch', worker.started_at) as started_at,
  date_part('epoch', worker.last_seen_at) as last_seen_at,
  worker.is_alive,
  case
    when not worker.is_alive
    then date_part('epoch', coalesce(worker.lost_at, now())) + date_part('epoch', worker.grace) - date_part('epoch', now())
  end as remaining,
  case
    when worker.last_seen_at < now() - worker.heartbeat_interval - worker.heartbeat_interval
    then date_part('epoch', now()) - date_part('epoch', worker.last_seen_at)
  end as silent_for,
  date_part('epoch', now()) as now,
  -- By name, because the columns are missing until own_objects/0007_running_jobs, 0008_blocked_loop, 0019_requests and
  -- 0020_task_descriptions are applied.
  (pg_catalog.to_jsonb(worker) ->> 'jobs_held'::text)::integer as jobs_held,
  pg_catalog.to_jsonb(worker) ->> 'running'::text as running,
  pg_catalog.to_jsonb(worker) ->> 'blocked'::text as blocked,
  pg_catalog.to_jsonb(worker) ->> 'app_version'::text as app_version,
  pg_catalog.to_jsonb(worker) ->> 'lanes'::text as lanes,
  pg_catalog.to_jsonb(worker) ->> 'state'::text as state,
  pg_catalog.to_jsonb(worker) ->> 'forbidden_flags'::text as forbidden_flags,
  coalesce(held.job_ids, '{}') as job_ids,
  -- Jobs of held batches: their pool reports that it runs them, and they look ready.
  array(
    select job.id
    from pg_catalog.jsonb_array_elements(
      case
        when pg_catalog.jsonb_typeof(pg_catalog.to_jsonb(worker) -> 'running'::text) = 'array'::text
        then pg_catalog.to_jsonb(worker) -> 'running'::text else '[]'::jsonb
      end
    ) as reported (job)
    join :GRAPHILE_WORKER_SCHEMA._private_jobs as job on job.id = (reported.job ->> 0)::bigint
    where scan.is_scanned and worker.is_alive and job.is_available and job.run_at <= now()
    order by job.id
  ) as held_ids,
  date_part('epoch', held.locked_since) as locked_since
from scan left join (worker full join held using (id)) on true
order by worker.started_at nulls last, id
