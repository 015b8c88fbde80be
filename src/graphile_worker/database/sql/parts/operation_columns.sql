    -- The columns of an operation with its row in the audit.
    operation.id, operation.audit_id, operation.action, operation.arguments::text as arguments,
    operation.chosen::text as chosen, operation.target, operation.rate, operation.state, operation.stage,
    operation.expected, operation.expected_kind, operation.up_to, operation.last_id, operation.last_at,
    operation.changed, operation.skipped, operation.succeeded, operation.watched, operation.kept, operation.note,
    operation.created_at, operation.updated_at, operation.finished_at, operation.runner, operation.lease_until,
    audit.who, audit.how, audit.origin, audit.undone_by,
    operation.lease_until < clock_timestamp() as is_orphaned
from :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
left join :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit on audit.id = operation.audit_id
