-- Find worker pools that are out of reach, note since when, and forget it of those that are back.
--
-- $1 text  name of the schema
-- $2 text  pool id of the one who asks, which is left out, or null
-- Returns for each that is out of reach: id, newly (whether it was in reach before), and remaining, the seconds
-- until it counts as dead. Only pools of this package are here: the other runtimes cannot be judged.
--
-- A pool that holds its lock is in reach. The lock of one that does not is taken until the end of this
-- transaction, so that it cannot come back in the middle. Behind a pooler, where there is no such lock, and while
-- a pool that starts has not taken it yet, two missed heartbeats count the same; a time in the future comes from a
-- clock that was put back.
with
judged as materialized (
  select
    worker.id,
    worker.lost_at,
    worker.grace,
    case
      when worker.liveness = 'lock' and worker.backend_pid is not null
      then pg_try_advisory_xact_lock(hashtextextended($1 || '/' || worker.id, 0::bigint))
      else worker.last_seen_at not between now() - worker.heartbeat_interval - worker.heartbeat_interval
        and now() + worker.heartbeat_interval + worker.heartbeat_interval
    end as is_lost
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  where worker.id is distinct from $2
),
marked as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  set lost_at = case when judged.is_lost then now() end
  from judged
  where worker.id = judged.id
    and case
      when judged.is_lost then worker.lost_at is null or worker.lost_at > now()
      else worker.lost_at is not null
    end
  returning worker.id, worker.lost_at
)
select
  judged.id,
  marked.id is not null as newly,
  date_part('epoch', coalesce(marked.lost_at, judged.lost_at)) + date_part('epoch', judged.grace)
    - date_part('epoch', now()) as remaining
from judged left join marked on marked.id = judged.id
where judged.is_lost
order by judged.id
