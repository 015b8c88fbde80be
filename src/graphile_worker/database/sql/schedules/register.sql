-- Register the crontab items of a worker pool, in place of those it has registered. Rows of pools that are gone are
-- deleted. Needs own_objects/0018_schedules.
--
-- $1 text       pool id
-- $2 text[]     identifiers, each once
-- Then arrays with one element for each: $3 text[] tasks, $4 text[] patterns, $5 text[] time zones, $6 text[] payloads
-- (JSON), $7 text[] options (JSON), $8 text[] sources.
with
gone as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_schedules schedule
  where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker where worker.id = schedule.pool_id
  )
)
insert into :GRAPHILE_WORKER_SCHEMA._private_py_schedules
  (pool_id, identifier, position, task, pattern, zone, payload, options, source)
select
  $1::text, item.identifier, item.position::integer, item.task, item.pattern, item.zone, item.payload::json,
  item.options::jsonb, item.source
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
  with ordinality as item (identifier, task, pattern, zone, payload, options, source, position)
on conflict (identifier, pool_id) do update set
  position = excluded.position, task = excluded.task, pattern = excluded.pattern, zone = excluded.zone,
  payload = excluded.payload, options = excluded.options, source = excluded.source
