-- Ask for an operation to be stopped after the current step.
-- $1 id.
-- Returns the id; no row if it has ended.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set state = 'stopping', updated_at = now()
where operation.id = $1::bigint and operation.finished_at is null
returning operation.id
