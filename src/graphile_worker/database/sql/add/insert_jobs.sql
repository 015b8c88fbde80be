-- Add many jobs of one task that have a payload and nothing else, with the effect of add_jobs on such specs.
--
-- The function takes an array of composite values; building and unpacking it is a quarter of the work.
--
-- $1 text    task identifier
-- $2 text[]  payloads as JSON text
-- Returns one row: ids in the order of the payloads (JSON text), created_at, task_id. The ids are null, and
-- nothing is added, if the task has no row yet.
with
task as materialized (
  select id from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = $1::text
),
notified as materialized (
  select pg_notify(
    'jobs:insert', '{"r":' || random()::text || ',"count":' || pg_catalog.cardinality($2::text[])::text || '}'
  )
  from task
),
added as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_jobs (task_id, payload)
  select (select id from task), payload::json
  from notified cross join pg_catalog.unnest($2::text[]) as spec (payload)
  returning id
)
select pg_catalog.json_agg(id)::text as ids, date_part('epoch', now()) as created_at, (select id from task) as task_id
from added
