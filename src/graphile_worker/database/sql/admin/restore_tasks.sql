-- Make the tasks of deleted jobs that come back, if they are gone.
-- $1 id in the audit, $2 job ids.
insert into :GRAPHILE_WORKER_SCHEMA._private_tasks (identifier)
select distinct kept.task
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
where kept.audit_id = $1::bigint and kept.job_id = any ($2::bigint[])
and not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks where tasks.identifier = kept.task
)
on conflict do nothing
