-- Note that an action is undone; it cannot be undone a second time.
-- $1 id of the action in the audit, $2 id of the undo.
-- Returns the id; no row if it was undone before.
update :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
set undone_by = $2::bigint
where audit.id = $1::bigint and audit.undone_by is null
returning audit.id
