-- Note that an operation has changed too many jobs to keep them: it cannot be undone.
-- $1 id of the operation.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set kept = 0
where operation.id = $1::bigint
