-- The same without that index: the permanently failed ones among the newest jobs.
-- $1 how many jobs to read.
select
    job.id,
    coalesce(
        (
            select tasks.identifier
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.id = job.task_id
        ),
        ''
    ) as task_identifier,
    pg_catalog."left"(job.last_error, 4000) as last_error,
    job.failed_at
from (
    select
        job.id, job.task_id, job.last_error, job.is_available, job.locked_at,
:include failed_at
        as failed_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    order by job.id desc
    limit $1::integer
) as job
where not job.is_available and job.locked_at is null
