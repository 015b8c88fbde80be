-- The payloads of jobs, except long ones.
-- $1 job ids, $2 how many bytes at most.
select job.id, job.payload::text as payload
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($1::bigint[]) and pg_catalog.octet_length(job.payload::text) <= $2::integer
