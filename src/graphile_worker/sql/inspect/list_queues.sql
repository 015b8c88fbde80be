-- Named queues, the longest first.
-- $1 the percentage of the jobs table's pages to read (100 counts all), $2 how many queues at most.
-- Returns queue_name, locked_by, locked_at (seconds since 1970), jobs and ready (as counted, not extrapolated).
select
    job_queues.queue_name,
    job_queues.locked_by,
    date_part('epoch', job_queues.locked_at) as locked_at,
    coalesce(counted.jobs, 0) as jobs,
    coalesce(counted.ready, 0) as ready
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
left join (
    select
        jobs.job_queue_id,
        count(*) as jobs,
        count(*) filter (where jobs.is_available and jobs.run_at <= now()) as ready
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system ($1::float4)
    where jobs.job_queue_id is not null
    group by jobs.job_queue_id
) as counted on counted.job_queue_id = job_queues.id
order by coalesce(counted.jobs, 0) desc, job_queues.queue_name
limit $2::integer
