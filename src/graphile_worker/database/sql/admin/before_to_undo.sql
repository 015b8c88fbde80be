-- The next jobs of an action that is undone.
-- $1 id in the audit, $2 the job id after which to start, $3 how many.
-- Returns job_id, changed_to, was_added.
select kept.job_id, kept.changed_to, kept.job is null as was_added
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
where kept.audit_id = $1::bigint and kept.job_id > $2::bigint
order by kept.job_id
limit $3::integer
