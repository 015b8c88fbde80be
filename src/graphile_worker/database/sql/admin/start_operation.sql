-- Add an operation, leased to the dashboard that carries it out.
-- $1 id in the audit, $2 action, $3 arguments as JSON text, $4 the chosen jobs as JSON text, $5 target, $6 rate or null,
-- $7 stage, $8 expected, $9 its kind, $10 the highest id, $11 runner, $12 seconds of the lease.
-- Returns the operation's id.
with added as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_operations
        (audit_id, action, arguments, chosen, target, rate, stage, expected, expected_kind, up_to, runner, lease_until)
    values (
        $1::bigint, $2::text, $3::text::json, $4::text::json, $5::text, $6::double precision, $7::text, $8::bigint,
        $9::text, $10::bigint, $11::text,
        clock_timestamp() + pg_catalog.make_interval(secs => $12::double precision)
    )
    returning id, audit_id
),
linked as (
    update :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
    set operation_id = added.id
    from added
    where audit.id = added.audit_id
)
select added.id from added
