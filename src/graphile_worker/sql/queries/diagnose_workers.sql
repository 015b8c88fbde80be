-- Worker pools of this package that are out of reach, for the doctor. Only where the table exists.
-- $1 the schema's name (text), with which a pool that lives holds an advisory lock.
-- Returns alive (how many are in reach) and lost (ids of those that are not), one row.
with lock as (
    select (classid::bigint << 32) | objid::bigint as key
    from pg_catalog.pg_locks
    where locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_catalog.pg_database where datname = current_database())
),
worker as (
    select
        workers.id,
        case workers.liveness
            when 'lock' then hashtextextended($1 || '/' || workers.id, 0) in (select key from lock)
            else workers.last_seen_at
                between now() - 2 * workers.heartbeat_interval and now() + 2 * workers.heartbeat_interval
        end as is_alive
    from :GRAPHILE_WORKER_SCHEMA._private_py_workers as workers
)
select
    count(*) filter (where worker.is_alive)::integer as alive,
    coalesce(array_agg(worker.id order by worker.id) filter (where not worker.is_alive), '{}') as lost
from worker
