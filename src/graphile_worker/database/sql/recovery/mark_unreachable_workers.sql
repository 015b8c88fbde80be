-- Find unreachable worker pools and set lost_at; clear it for pools that are back.
--
-- $1 text  name of the schema
-- $2 text  pool id of the caller, which is skipped, or null
-- Returns for each unreachable pool: id, newly (whether this sweep noticed first), and remaining (seconds until it is
-- declared dead). Covers pools of this package only: other runtimes send us no heartbeats.
--
-- A pool that holds its advisory lock is alive. If the lock is free we hold it until the end of this transaction, so
-- that the pool cannot come back halfway. Two missed heartbeats mean the same behind a pooler, where the lock would not
-- stay with the pool, and during start-up, before it is taken. A time in the future means that the clock was set back.
with
checked as materialized (
  select
    worker.id,
    worker.lost_at,
    worker.grace,
    case
      when worker.liveness = 'lock' and worker.backend_pid is not null
      then pg_try_advisory_xact_lock(hashtextextended($1::text || '/' || worker.id, 0::bigint))
      else worker.last_seen_at not between now() - worker.heartbeat_interval - worker.heartbeat_interval
        and now() + worker.heartbeat_interval + worker.heartbeat_interval
    end as is_unreachable
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  where worker.id is distinct from $2::text
),
marked as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  set lost_at = case when checked.is_unreachable then now() end
  from checked
  where worker.id = checked.id
    and case
      when checked.is_unreachable then worker.lost_at is null or worker.lost_at > now()
      else worker.lost_at is not null
    end
  returning worker.id, worker.lost_at
)
select
  checked.id,
  marked.id is not null as newly,
  date_part('epoch', coalesce(marked.lost_at, checked.lost_at)) + date_part('epoch', checked.grace)
    - date_part('epoch', now()) as remaining
from checked left join marked on marked.id = checked.id
where checked.is_unreachable
order by checked.id
