-- Permanently failed jobs by task, in a sample of the table, for the doctor.
-- $1 the percentage of the table's pages to read; 100 counts all.
-- Returns task_identifier, jobs (as counted, not scaled up), and last_error of the one that failed last.
with failed as materialized (
    select
:include failed_jobs
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system ($1::float4)
    where not jobs.is_available and jobs.locked_at is null
)
:include failures_by_task
