-- Lock jobs by id; returns which version of the row each one is, and whether it is running.
-- $1 job ids.
select job.id, job.xmin::text as version, job.locked_at is not null as is_running
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($1::bigint[])
order by job.id
for update
