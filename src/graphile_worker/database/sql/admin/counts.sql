-- How many jobs there are, and names to choose from.

-- statement: job_estimates
-- How many jobs there are, by what the server knows without reading them, and exactly up to a bound.
-- $1 name of the schema
-- $2 up to how many to count
-- Returns rows (all jobs) and waiting (ready and scheduled), as estimates; has_failed_index; failed (an estimate, null
-- without the index); counted, failed_counted and ready_counted, at most $2 + 1 (failed_counted is null without the index).
with recursive relation as materialized (
    select class.relname, class.reltuples, class.oid
    from pg_catalog.pg_class as class
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    where namespace.nspname = $1::text
    and class.relname = any (array['_private_jobs', 'jobs_main_index', '_private_py_jobs_failed_index']::name[])
),
known as materialized (
    select
        greatest(0::float8, max(relation.reltuples::float8) filter (where relation.relname = '_private_jobs'::name)) as in_table,
        greatest(0::float8, max(relation.reltuples::float8) filter (where relation.relname = 'jobs_main_index'::name)) as in_main,
        greatest(
            0::float8,
            max(relation.reltuples::float8) filter (where relation.relname = '_private_py_jobs_failed_index'::name)
        ) as in_failed,
        coalesce(bool_or(relation.relname = '_private_py_jobs_failed_index'::name), false) as has_failed_index,
        greatest(
            0::bigint,
            max(pg_catalog.pg_stat_get_live_tuples(relation.oid)) filter (where relation.relname = '_private_jobs'::name)
        ) as live
    from relation
),
beginning (priority) as (select (-32768)::smallint),
:include first_of_priority
select
    case when known.live > 0 then known.live::float8 else known.in_table end as rows,
    known.in_main * case when known.in_table > 0::float8 and known.live > 0 then known.live::float8 / known.in_table else 1 end as waiting,
    known.has_failed_index,
    case when known.has_failed_index then known.in_failed end as failed,
    (
        select count(*)
        from (
            select job.id from :GRAPHILE_WORKER_SCHEMA._private_jobs as job order by job.id desc limit $2::integer + 1
        ) as first
    ) as counted,
    case when known.has_failed_index then (
        select count(*)
        from (
            select job.id
            from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
            where not job.is_available and job.locked_at is null
            order by job.id
            limit $2::integer + 1
        ) as first
    ) end as failed_counted,
    (
        select count(*)
        from (
            select first_of_priority.priority
            from first_of_priority
            cross join lateral (
                select job.id
                from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
                where job.is_available = true
                and (job.priority, job.run_at) >= (first_of_priority.priority, '-infinity'::timestamptz)
                and (job.priority, job.run_at) <= (first_of_priority.priority, now())
                order by job.priority, job.run_at
                limit $2::integer + 1
            ) as ready
            limit $2::integer + 1
        ) as first
    ) as ready_counted
from known

-- statement: attempts_since
-- What became of attempts since a minute, by task: of the minutes that are not over, too.
-- $1 the minute.
-- Returns task, completed, failed (those that were the last one included).
select
    minutes.task, sum(minutes.completed)::double precision as completed,
    sum(minutes.failed + minutes.permanently_failed)::double precision as failed
from :GRAPHILE_WORKER_SCHEMA._private_py_minutes as minutes
where minutes.minute >= $1::timestamptz
group by minutes.task

-- statement: complete_queues
-- Names of queues that begin with a text, in a bounded part of their index.
-- $1 text     the beginning
-- $2 integer  how many at most
-- Returns name.
select found.name
from (
    select job_queues.queue_name as name
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    where job_queues.queue_name >= $1::text
    order by job_queues.queue_name
    limit 1000
) as found
where pg_catalog.starts_with(found.name, $1::text) and found.name !~ ' \[[1-9][0-9]*\]$' -- tracks of wide queues
order by found.name
limit $2::integer

-- statement: complete_tasks
-- Task identifiers that contain a text.
-- $1 text     the text
-- $2 integer  how many at most
-- Returns name.
select found.name
from (
    select tasks.identifier as name
    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    order by tasks.identifier
    limit 5000
) as found
where pg_catalog.strpos(lower(found.name), lower($1::text)) > 0
order by found.name
limit $2::integer
