-- Lock an operation for its next step, if this dashboard still carries it out; renews the lease.
-- $1 id, $2 runner, $3 seconds of the lease.
-- Returns the id; no row if it has ended or another dashboard has it.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set lease_until = clock_timestamp() + pg_catalog.make_interval(secs => $3::double precision)
where operation.id = $1::bigint and operation.runner = $2::text and operation.finished_at is null
returning operation.id
