-- Set bounds of a limit by hand. They win over those of the code.
--
-- $1 text              name
-- $2 integer           how many jobs may run at once; null leaves it as it is
-- $3 double precision  how many may start ...
-- $4 double precision  ... in a period of this many seconds; null leaves the rate as it is
-- $5 double precision  how many may start at once after a rest; null leaves it as it is
-- Returns the name; no row if there is no such limit. Notifies workers.
with changed as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_limits
  set
    set_concurrency = coalesce($2::integer, set_concurrency),
    set_starts = coalesce($3::double precision, set_starts),
    set_period = coalesce($4::double precision, set_period),
    set_burst = coalesce($5::double precision, set_burst),
    set_at = now(),
    is_awaited = false
  where name = $1::text
  returning name
),
notified as materialized (select pg_notify('worker:py', '{"limits":1}') from changed)
select changed.name from changed cross join notified
