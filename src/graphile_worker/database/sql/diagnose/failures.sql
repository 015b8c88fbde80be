-- Permanently failed jobs by task, for the doctor; the newest ones, through their index.
-- $1 how many jobs at most.
-- Returns task_identifier, jobs, and last_error of the one that failed last.
with failed as materialized (
    select
:include failed_jobs
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where not jobs.is_available and jobs.locked_at is null
    order by jobs.id desc
    limit $1::integer
)
:include failures_by_task
