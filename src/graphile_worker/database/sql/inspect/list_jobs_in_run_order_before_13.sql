-- list_jobs_in_run_order for a server without incremental sorts. Jobs are read as the index of the fetch has them, in
-- groups of one priority and run_at; each group is sorted by id, and the limit ends the reading. Then the jobs are read
-- by their ids.
-- $1 to $14 and the line ":conditions" are those of list_jobs_in_run_order.
:include job_details
where job.id = any(array(
    select same.id
    from (
        select job.priority, job.run_at, pg_catalog.array_agg(job.id order by job.id) as ids
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available = true
        and (
            $12::integer is null
            or (job.priority, job.run_at, job.id) > ($12::integer, to_timestamp($13::float8), $14::bigint)
        )
:include matching_jobs
-- :conditions
        group by job.priority, job.run_at
        order by job.priority, job.run_at
        limit $1::integer
    ) as instant
    cross join lateral pg_catalog.unnest(instant.ids) as same (id)
    order by instant.priority, instant.run_at
    limit $1::integer
))
order by job.priority, job.run_at, job.id
