-- Take over an operation whose dashboard is gone.
-- $1 id, $2 runner, $3 seconds of the lease.
-- Returns the id; no row if it has ended or another dashboard has it.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set
    runner = $2::text,
    lease_until = clock_timestamp() + pg_catalog.make_interval(secs => $3::double precision)
where operation.id = $1::bigint
and operation.finished_at is null
and (operation.runner is null or operation.runner = $2::text or operation.lease_until < clock_timestamp())
returning operation.id
