-- One step of an operation of the dashboard: lock matching jobs, which the same transaction then changes.
-- $1 to $14 as in parts/bulk_seen, $15 whether to choose jobs that are locked by a worker too.
-- Returns last_id (where the next step starts), seen (matching jobs, locked or not), and for each task with chosen jobs
-- task_identifier, jobs, failed (how many have failed permanently) and ids; one row of zeros if none.
:include bulk_seen
changed as materialized (
    select
        job.id, job.task_id, job.is_available or job.locked_at is not null as is_available, null::json as kept,
        false as is_asked
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = any (array(select seen.id from seen))
    and (job.locked_at is null or $15::boolean)
:include matching_jobs
-- :conditions
    for update skip locked
)
:include bulk_result
