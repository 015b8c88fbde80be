-- Jobs by their ids, the newest first.
-- $1 bigint[]  ids
-- $2 integer   the longest payload to return, in bytes
-- Returns the columns of parts/found_jobs.
select
:include found_jobs
    case
        when $2::integer = 0 then null
        when pg_catalog.octet_length(job.payload::text) <= $2::integer then job.payload::text
    end as payload
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
where job.id = any ($1::bigint[])
order by job.id desc
