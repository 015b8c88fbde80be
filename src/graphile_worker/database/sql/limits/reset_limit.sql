-- Remove the bounds that operators have set for a limit, so that those of the code hold again.
--
-- $1 text  name
-- Returns the name; no row if there is no such limit. Notifies workers.
with changed as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_limits
  set
    set_concurrency = null, set_starts = null, set_period = null, set_burst = null, set_at = null,
    is_awaited = false
  where name = $1::text
  returning name
),
notified as materialized (select pg_notify('worker:py', '{"limits":1}') from changed)
select changed.name from changed cross join notified
