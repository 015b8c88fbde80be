-- One step of a search for jobs by descending id; by ascending id in the variant `upwards`. However few match, at most $13
-- jobs are read.
-- $1 how many jobs at most, $2 to $11 the conditions of parts/matching_jobs, $12 the id after which to start,
-- $13 how many jobs to read at most, $14 the longest payload to return, in bytes.
-- The line ":walked" is replaced by the condition of the index to walk along, if it is not the primary key; the line
-- ":conditions" by further conditions.
-- Returns last_id (how far it has read; null at the end of the table), and the columns of parts/found_jobs: one row with
-- nulls if no job was found.
with seen as materialized (
    select job.*
    from (
        select job.*
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where
:include next_id
-- :walked
        order by
:include id_order
        limit $13::integer
    ) as job
    where true
:include matching_jobs
-- :conditions
    order by
:include id_order
    limit $1::integer
),
step as materialized (
    select
        case
            when (select count(*) from seen) >= $1::integer then (
:include last_seen_id
            )
            else (
                select job.id
                from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
                where
:include next_id
-- :walked
                order by
:include id_order
                offset $13::integer - 1
                limit 1
            )
        end as last_id
)
select
    step.last_id,
:include found_jobs
    case
        when $14::integer = 0 then null
        when pg_catalog.octet_length(job.payload::text) <= $14::integer then job.payload::text
    end as payload
from step
left join seen as job on true
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = job.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = job.job_queue_id
order by
:include id_order
