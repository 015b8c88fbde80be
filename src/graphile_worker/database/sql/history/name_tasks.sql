-- Remember the names of tasks for the history, which outlives their rows.
--
-- $1 text[]  task identifiers
insert into :GRAPHILE_WORKER_SCHEMA._private_py_task_names (id, identifier)
select id, identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = any ($1::text[])
on conflict (id) do nothing
