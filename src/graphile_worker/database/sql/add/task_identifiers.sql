-- Task identifiers by id.
-- $1 task ids as texts.
-- Returns id and identifier of those that exist.
select tasks.id, tasks.identifier
from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
where tasks.id = any($1::text[]::integer[])
