-- Which of these jobs exist.
-- $1 job ids.
select job.id from :GRAPHILE_WORKER_SCHEMA._private_jobs as job where job.id = any ($1::bigint[])
