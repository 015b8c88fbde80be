-- End an operation that cannot go on.
-- $1 id, $2 runner, $3 why.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set state = 'failed', note = $3::text, updated_at = clock_timestamp(), finished_at = clock_timestamp()
where operation.id = $1::bigint and operation.runner = $2::text and operation.finished_at is null
