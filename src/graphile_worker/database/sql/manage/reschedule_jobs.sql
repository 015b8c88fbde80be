-- Change run_at, priority and attempts of jobs that are not locked; null leaves a value as it is.
-- $1 job ids as texts, $2 run_at, $3 delay from now in seconds (used when $2 is null), $4 priority, $5 attempts, $6 max_attempts.
-- Returns the changed jobs' columns in the order of Job.
with rescheduled as materialized (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
        job_ids => $1::text[]::bigint[],
        run_at => coalesce($2::timestamptz, now() + pg_catalog.make_interval(secs => $3::float8)),
        priority => $4::integer,
        attempts => $5::integer,
        max_attempts => $6::integer
    ) as job
),
:include told_of_rescheduled
select
:include job_columns
    coalesce((
        select tasks.identifier
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.id = job.task_id
    ), '') as task_identifier
from rescheduled as job
left join told on true
order by job.id
