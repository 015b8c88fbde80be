-- The session of another worker that has the sweep lock and waits for its client in the middle of a statement. The driver
-- sends a statement in two steps; no timeout covers the time between them before PostgreSQL 17. A client that is silent
-- there for seconds is suspended.
--
-- $1 integer  process id of a session to end if it still waits for the same, or null
-- $2 float8   when that statement began, in seconds since 1970, or null
-- Returns the process id, when its statement began, and whether it was ended.
with silent as materialized (
  select activity.pid, date_part('epoch', activity.query_start) as began
  from pg_catalog.pg_locks held
  join pg_catalog.pg_stat_activity activity on activity.pid = held.pid
  where held.granted and held.locktype = 'advisory' and held.objsubid = 2
    and held.database = (select oid from pg_catalog.pg_database where datname = current_database())
    and held.classid = 1196905043::oid and held.objid = 1398228304::oid
    and activity.pid <> pg_backend_pid() and activity.usename = current_user
    and activity.state = 'active' and activity.wait_event = 'ClientRead'
)
select
  pid,
  began,
  case when pid = $1::integer and began = $2::double precision then pg_terminate_backend(pid) end as is_ended
from silent
