-- Note that these tasks have a handler for permanent failures. Only failures from now on are told, also if a task had
-- a handler once and none for a week or longer.
--
-- $1 text[]  task identifiers
insert into :GRAPHILE_WORKER_SCHEMA._private_py_failure_handlers as handler (task)
select task from pg_catalog.unnest($1::text[]) as handled (task)
order by task
on conflict (task) do update
set
  since = case when handler.checked_at < now() - interval '7 days' then now() else handler.since end,
  checked_at = now()
