-- Worker pools of this package and whether each is alive, by the rules of mark_unreachable_workers but without taking a
-- lock. $1 is the name of the schema.
lock as (
  select (classid::bigint << 32) | objid::bigint as key
  from pg_catalog.pg_locks
  where locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_catalog.pg_database where datname = current_database())
),
worker as (
  select
    *,
    case
      when liveness = 'lock' and backend_pid is not null
      then hashtextextended($1::text || '/' || id, 0::bigint) in (select key from lock)
      else last_seen_at between now() - heartbeat_interval - heartbeat_interval
        and now() + heartbeat_interval + heartbeat_interval
    end as is_alive
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers
)
