-- One step of a bulk change: delete matching jobs.
-- $1 to $14 as in parts/bulk_seen.
-- Returns last_id (where the next step starts), seen (matching jobs, locked or not), and for each task with deleted jobs
-- task_identifier, jobs, failed (how many had failed permanently) and ids; one row of zeros if none.
:include bulk_chosen
changed as materialized (
    select
        job.id, job.task_id, job.is_available, false as is_asked,
:include kept_job
    from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => array(select chosen.id from chosen)) as job
)
:include bulk_result
