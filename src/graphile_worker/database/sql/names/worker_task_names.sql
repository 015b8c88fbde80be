-- The task identifiers of the pools of this package that are alive.
--
-- $1 text  name of the schema
-- Returns identifier.
with
:include workers_with_liveness
select distinct pg_catalog.unnest(worker.tasks) as identifier from worker where worker.is_alive
