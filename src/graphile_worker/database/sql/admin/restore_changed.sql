-- Put jobs back to what they were. Lock them first.
-- $1 id in the audit, $2 job ids.
update :GRAPHILE_WORKER_SCHEMA._private_jobs as job
set
    payload = before.payload,
    priority = before.priority,
    run_at = before.run_at,
    attempts = before.attempts,
    max_attempts = before.max_attempts,
    last_error = before.last_error,
    key = before.key,
    revision = job.revision + 1,
    flags = before.flags,
    updated_at = now()
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
cross join lateral pg_catalog.json_populate_record(null:::GRAPHILE_WORKER_SCHEMA._private_jobs, kept.job) as before
where kept.audit_id = $1::bigint and kept.job_id = any ($2::bigint[]) and job.id = kept.job_id
