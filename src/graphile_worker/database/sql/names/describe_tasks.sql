-- Write what a worker pool that has just started says about its tasks and its forbidden flags. Needs
-- own_objects/0020_task_descriptions.
--
-- $1 text      pool id
-- $2 text[]    forbidden flags, or null if they may change
-- $3 text[]    identifiers of its tasks, each once
-- Then arrays with one element for each: $4 text[] runbooks, $5 text[] owners, $6 text[] types of the payload, $7 text[]
-- schemas of the payload (JSON). A task without any of them has a row only if it had one.
--
-- Rows are written in one order by all, so that workers that start at once do not wait for each other in a circle. A row
-- that says the same is written once a day. Only the latest 2,000 are kept.
with
described as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_workers set forbidden_flags = $2::text[] where id = $1::text
),
purged as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions description
  where description.identifier in (
    select old.identifier
    from :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions old
    where old.described_at < now() - interval '1 day'
    order by old.described_at desc
    offset 2000
    for update skip locked
  )
)
insert into :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions as description
  (identifier, runbook, owner, payload_type, payload_schema)
select task.identifier, task.runbook, task.owner, task.payload_type, task.payload_schema::json
from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
  as task (identifier, runbook, owner, payload_type, payload_schema)
where coalesce(task.runbook, task.owner, task.payload_type, task.payload_schema) is not null
  or exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions known where known.identifier = task.identifier
  )
order by task.identifier
on conflict (identifier) do update set
  runbook = excluded.runbook, owner = excluded.owner, payload_type = excluded.payload_type,
  payload_schema = excluded.payload_schema, described_at = now()
where description.runbook is distinct from excluded.runbook
  or description.owner is distinct from excluded.owner
  or description.payload_type is distinct from excluded.payload_type
  or description.payload_schema::text is distinct from excluded.payload_schema::text
  or description.described_at < now() - interval '1 day'
