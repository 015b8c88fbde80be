-- After a change: remember which version of each row it left, and forget jobs that it did not change.
-- $1 id in the audit, $2 job ids that were kept, $3 those that were changed.
with forgotten as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
    where kept.audit_id = $1::bigint
    and kept.job_id = any ($2::bigint[]) and kept.job_id <> all ($3::bigint[])
)
update :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
set changed_to = job.xmin::text
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where kept.audit_id = $1::bigint and kept.job_id = any ($3::bigint[]) and job.id = kept.job_id
