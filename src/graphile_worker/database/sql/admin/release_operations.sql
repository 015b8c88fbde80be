-- Let go of the operations of a dashboard that ends, so that another one can go on at once.
-- $1 runner.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set runner = null, lease_until = null
where operation.runner = $1::text and operation.finished_at is null
