-- Make the queues of deleted jobs that come back, if they are gone.
-- $1 id in the audit, $2 job ids.
insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name)
select distinct pg_catalog.regexp_replace(kept.queue_name, ' \[[1-9][0-9]*\]$', '')
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
where kept.audit_id = $1::bigint and kept.job_id = any ($2::bigint[]) and kept.queue_name is not null
and not exists (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    where job_queues.queue_name = pg_catalog.regexp_replace(kept.queue_name, ' \[[1-9][0-9]*\]$', '')
)
on conflict do nothing
