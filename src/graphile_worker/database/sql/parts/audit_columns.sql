    -- The columns of a row of the audit, and whether it can be undone.
    audit.id, audit.at, audit.who, audit.how, audit.origin, audit.action, audit.target, audit.jobs, audit.job_ids,
    audit.details::text as details, audit.operation_id, audit.undone_by,
    audit.undone_by is null and (
        audit.action in ('pause_queue', 'pause_task', 'pause_all')
        or exists (
            select from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept where kept.audit_id = audit.id
        )
    ) as can_undo
from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
