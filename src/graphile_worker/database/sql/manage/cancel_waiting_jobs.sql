-- cancel_jobs for roles that may not ask workers, and for databases without the table: delete jobs that are not running.
-- $1 job ids as texts, $2 a job key or null.
-- Returns the jobs' columns in the order of Job, deleted or not, then is_removed. Unknown ids are left out.
with found as materialized (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = any (array(
:include cancel_ids
    ))
    order by job.id
    for update
),
removed as materialized (
    select job.id
    from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => array(select found.id from found)) as job
)
select
:include job_columns
    coalesce((
        select tasks.identifier
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.id = job.task_id
    ), '') as task_identifier,
    job.id in (select removed.id from removed) as is_removed
from found as job
order by job.id
