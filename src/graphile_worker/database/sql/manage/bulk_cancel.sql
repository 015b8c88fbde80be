-- One step of a bulk change: cancel matching jobs, running ones too; see cancel_jobs.
-- $1 to $14 as in parts/bulk_seen, $15 the reason or null, $16 the name of the schema.
-- Returns last_id (where the next step starts), seen (matching jobs), and for each task with cancelled jobs
-- task_identifier, jobs, asked (how many of them are running), failed (how many had failed permanently) and ids; one row of
-- zeros if none.
:include bulk_seen
request (reason, schema_name) as materialized (select $15::text, $16::text),
found as materialized (
    select job.id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = any (array(select seen.id from seen))
:include matching_jobs
-- :conditions
    for update skip locked
),
removed as materialized (
    select
        job.id, job.task_id, job.is_available, job.locked_at,
:include kept_job
    from :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids => array(select found.id from found)) as job
),
:include cancel_running
,
changed as materialized (
    select
        removed.id, removed.task_id, removed.is_available or removed.locked_at is not null as is_available, removed.kept,
        false as is_asked
    from removed
    union all
    select detached.id, detached.task_id, true, null::json, true
    from detached left join told on true
)
:include bulk_result
