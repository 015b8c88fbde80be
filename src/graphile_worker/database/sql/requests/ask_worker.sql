-- Ask something of a worker pool. Requests for stacks that no one waits for any more are deleted.
--
-- $1 text    pool id
-- $2 text    stop, quiet or stack
-- $3 bigint  job id, for a stack
-- $4 text    reason, or null
-- Returns the id of the request; no row if no such pool is registered. A pool is asked only once to stop or to be quiet.
with
forgotten as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_requests
  where kind = 'stack' and asked_at < now() - interval '5 minutes'
),
earlier as materialized (
  select id
  from :GRAPHILE_WORKER_SCHEMA._private_py_requests
  where pool_id = $1::text and kind = $2::text and kind <> 'stack'
  order by id
  limit 1
),
asked as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_requests (pool_id, kind, job_id, reason)
  select worker.id, $2::text, $3::bigint, $4::text
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  where worker.id = $1::text and not exists (select from earlier)
  returning id
),
notified as materialized (
  select pg_notify('worker:py', pg_catalog.json_build_object('requests', 1, 'pool', $1::text)::text) from asked
)
select coalesce((select max(asked.id) from asked), (select max(earlier.id) from earlier)) as id
from (select count(*) from notified) always
where exists (select from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker where worker.id = $1::text)
