-- Everybody who is at work or has jobs locked.
--
-- $1 text  name of the schema
-- Returns a row for each pool, our own first: what it wrote down about itself (null for pools of other runtimes,
-- and for those without a row), is_alive (null where nobody can tell), remaining (seconds until one that is out of
-- reach counts as dead) and the jobs it holds. Changes nothing, unlike judge_workers.
with
held as (
  select locked_by as id, pg_catalog.array_agg(id order by id) as job_ids, min(locked_at) as locked_since
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where locked_by is not null
  group by locked_by
),
:include judged_workers
select
  id,
  worker.host, worker.pid, worker.version, worker.tasks, worker.concurrency, worker.liveness,
  date_part('epoch', worker.started_at) as started_at,
  date_part('epoch', worker.last_seen_at) as last_seen_at,
  worker.is_alive,
  case
    when not worker.is_alive
    then date_part('epoch', coalesce(worker.lost_at, now())) + date_part('epoch', worker.grace) - date_part('epoch', now())
  end as remaining,
  coalesce(held.job_ids, '{}') as job_ids,
  date_part('epoch', held.locked_since) as locked_since
from worker full join held using (id)
order by worker.started_at nulls last, id
