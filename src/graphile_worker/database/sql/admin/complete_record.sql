-- Complete a row of the audit after the change.
-- $1 id in the audit, $2 how many jobs were changed in addition to those counted, $3 their ids, $4 the target or null.
update :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
set
    jobs = audit.jobs + $2::bigint,
    job_ids = $3::bigint[],
    target = coalesce($4::text, audit.target)
where audit.id = $1::bigint
