-- What workers say about a task. Needs own_objects/0020_task_descriptions.
--
-- $1 text  its identifier
select runbook, owner, payload_type, payload_schema::text as payload_schema
from :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions
where identifier = $1::text
