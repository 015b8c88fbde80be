-- Part of every bulk statement: the next jobs by id that match the filter, locked or not. However few match, at most $14
-- jobs are read.
-- $1 how many jobs at most, $2 to $11 the conditions of parts/matching_jobs, $12 the id after which to start, $13 the last
-- id to read, $14 how many jobs to read at most.
-- The line ":walked" is replaced by the condition of the index to walk along, if it is not the primary key; the line
-- ":conditions" by further conditions (parts/listed_...).
with seen as materialized (
    select job.id, job.task_id, job.locked_at, job.is_available
    from (
        select
            job.id, job.task_id, job.job_queue_id, job.key, job.locked_at, job.locked_by, job.flags, job.last_error,
            job.run_at, job.created_at, job.updated_at, job.attempts, job.is_available, job.priority, job.payload
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.id > $12::bigint -- with an upper bound as well, the planner may expect few rows and sort them
-- :walked
        order by job.id
        limit $14::integer
    ) as job
    where job.id <= $13::bigint
:include matching_jobs
-- :conditions
    order by job.id
    limit $1::integer
),
-- How far this step has read: to the last job seen if there may be more, else to the end of what it may read.
step as materialized (
    select
        case
            when (select count(*) from seen) >= $1::integer then (select max(seen.id) from seen)
            else coalesce((
                select job.id
                from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
                where job.id > $12::bigint -- with an upper bound as well, the planner may expect few rows and sort them
-- :walked
                order by job.id
                offset $14::integer - 1
                limit 1
            ), $13::bigint)
        end as last_id,
        (select count(*) from seen) as seen
),
