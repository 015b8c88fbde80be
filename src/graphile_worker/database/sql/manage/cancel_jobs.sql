-- Cancel jobs: delete those that are not running, and tell the workers of the others to end them. The rows are locked
-- first, so that no job can start or end in between.
-- $1 job ids as texts, $2 a job key or null, $3 the reason or null, $4 the name of the schema.
-- Returns the jobs' columns in the order of Job, as they were, then is_removed: false for a running job, whose worker is
-- told. Unknown ids are left out.
with request (reason, schema_name) as materialized (select $3::text, $4::text),
found as materialized (
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
),
:include cancel_running
select
:include job_columns
    coalesce((
        select tasks.identifier
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.id = job.task_id
    ), '') as task_identifier,
    job.id in (select removed.id from removed) as is_removed
from found as job left join told on true
order by job.id
