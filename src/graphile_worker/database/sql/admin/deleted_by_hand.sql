-- Which of these jobs were deleted through the dashboard after an operation had changed them.
-- $1 job ids, $2 id of the operation in the audit.
select distinct kept.job_id
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
where kept.job_id = any ($1::bigint[]) and kept.audit_id > $2::bigint and kept.changed_to is null
