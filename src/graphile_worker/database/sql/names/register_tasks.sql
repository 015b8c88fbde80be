-- Create the missing rows of task identifiers. Existing ones use up no sequence values.
--
-- $1 text[]  task identifiers
insert into :GRAPHILE_WORKER_SCHEMA._private_tasks (identifier)
select name from pg_catalog.unnest($1::text[]) as wanted (name)
where not exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_tasks task where task.identifier = wanted.name
)
on conflict (identifier) do nothing
