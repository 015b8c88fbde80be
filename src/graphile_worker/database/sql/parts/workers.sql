-- When a worker is alive.

-- part: workers_with_liveness
-- Worker pools of this package and whether each is alive, without taking a lock. $1 is the name of the schema.
proven (id) as materialized (
  select worker.id
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  where hashtextextended($1::text || '/' || worker.id, 0::bigint) in (
    select (classid::bigint << 32) | objid::bigint
    from pg_catalog.pg_locks
    where locktype = 'advisory' and objsubid = 1 and granted
      and database = (select oid from pg_catalog.pg_database where datname = current_database())
  )
),
worker as (
  select
    worker.*,
    proof.allowed_silence,
:include is_alive
    as is_alive
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
:include proof
)

-- part: proof
-- Whether the advisory lock of `worker` proves that it is alive. Not behind a pooler, where the lock would not stay with the
-- pool, and not during its start, before it is taken. Without that, it may miss one heartbeat.
cross join lateral (
  select
    worker.liveness = 'lock' and worker.backend_pid is not null as by_lock,
    worker.heartbeat_interval + worker.heartbeat_interval as allowed_silence
) as proof

-- part: is_alive
  -- Whether `worker` is alive: by its lock, if that proves it (`proof`); `proven` has the pools whose lock is held. Otherwise
  -- a longer silence than allowed means that it is not, and so does a time in the future: the clock was set back.
  case
    when proof.by_lock then worker.id in (select proven.id from proven)
    else worker.last_seen_at between now() - proof.allowed_silence and now() + proof.allowed_silence
  end
