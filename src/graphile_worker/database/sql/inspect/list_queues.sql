-- Named queues, the longest first. A wide queue is one, with the jobs in its tracks.
-- $1 the percentage of the jobs table's pages to read (100 counts all), $2 how many queues at most.
-- Returns queue_name, locked_by, locked_at (seconds since 1970), jobs and ready (as counted, not extrapolated), width.
with queue as (
    select
        job_queues.id,
        job_queues.queue_name,
        pg_catalog.regexp_replace(job_queues.queue_name, ' \[[1-9][0-9]*\]$', '') as home,
        job_queues.locked_by,
        job_queues.locked_at
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
)
select
    queue.home as queue_name,
    (pg_catalog.array_agg(queue.locked_by order by queue.queue_name = queue.home desc, queue.locked_by))[1] as locked_by,
    date_part(
        'epoch',
        (pg_catalog.array_agg(queue.locked_at order by queue.queue_name = queue.home desc, queue.locked_by))[1]
    ) as locked_at,
    coalesce(sum(counted.jobs), 0)::bigint as jobs,
    coalesce(sum(counted.ready), 0)::bigint as ready,
    case -- a track that is closed is locked although its queue is not
        when bool_and(queue.locked_by is not distinct from 'py:hold') then count(*)
        else count(*) filter (where queue.locked_by is distinct from 'py:hold')
    end as width
from queue
left join (
    select
        jobs.job_queue_id,
        count(*) as jobs,
        count(*) filter (where jobs.is_available and jobs.run_at <= now()) as ready
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system ($1::float4)
    where jobs.job_queue_id is not null
    group by jobs.job_queue_id
) as counted on counted.job_queue_id = queue.id
group by queue.home
order by coalesce(sum(counted.jobs), 0) desc, queue.home
limit $2::integer
