-- Free queues that a dead worker has locked, if it still has them.
--
-- $1 integer[]  queue ids
-- $2 text       the worker
-- Returns how many were freed.
with
freed as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues
  set locked_at = null, locked_by = null
  where id = any ($1::integer[]) and locked_by = $2::text and locked_by <> 'py:hold'
  returning id
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from freed having count(*) > 0
)
select count(*) as queues from freed left join notified on true
