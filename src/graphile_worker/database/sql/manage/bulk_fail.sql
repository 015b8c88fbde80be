-- One step of a bulk change: fail matching jobs permanently.
-- $1 to $14 as in parts/bulk_seen, $15 the reason (null for the default).
-- Returns last_id (where the next step starts), seen (matching jobs, locked or not), and for each task with failed jobs
-- task_identifier, jobs, failed (all of them) and ids; one row of zeros if none.
:include bulk_chosen
changed as materialized (
    select
        job.id, job.task_id, job.is_available, false as is_asked,
:include kept_job
    from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(
        job_ids => array(select chosen.id from chosen), error_message => $15::text
    ) as job
)
:include bulk_result
