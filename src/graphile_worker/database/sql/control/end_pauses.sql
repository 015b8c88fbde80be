-- Resume queues: back to the pool that still runs a job of it, so that the queue stays serial, else free.
--
-- $1 integer[]  queue ids
-- $2 bigint[]   ids of their jobs that are running; this transaction has locked their rows
-- Returns how many queues were paused.
with
running as materialized (
  select distinct on (job_queue_id) id, job_queue_id, locked_by, locked_at
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($2::bigint[])
  order by job_queue_id, locked_at desc
),
resumed as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = running.locked_by, locked_at = running.locked_at
  from pg_catalog.unnest($1::integer[]) as wanted (id) left join running on running.job_queue_id = wanted.id
  where queue.id = wanted.id and queue.locked_by = 'py:hold'
  returning queue.id
),
returned as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  set until = now(), job_id = running.id
  from running
  where paused.queue_id = running.job_queue_id and paused.queue_id = any ($1)
  returning paused.queue_id
),
ended as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  where paused.queue_id = any ($1) and paused.queue_id not in (select job_queue_id from running)
  returning paused.queue_id
),
told_all as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from resumed having count(*) > 0
),
told_us as materialized (select pg_notify('worker:py', '{"pauses":1}'))
select (select count(*) from returned) + (select count(*) from ended) as queues
from told_us left join told_all on true
