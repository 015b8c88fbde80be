-- Remember jobs that an action added, so that an undo can delete them.
-- $1 id in the audit, $2 job ids.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_before (audit_id, job_id, task)
select $1::bigint, job.id, ''
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($2::bigint[])
on conflict (audit_id, job_id) do nothing
