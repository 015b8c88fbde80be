-- Forget the jobs of an action that has changed too many of them: it cannot be undone.
-- $1 id in the audit.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept where kept.audit_id = $1::bigint
