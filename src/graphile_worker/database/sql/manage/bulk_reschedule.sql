-- One step of a bulk change: change run_at, priority and attempts of matching jobs; null leaves a value as it is.
-- $1 to $14 as in parts/bulk_seen, $15 run_at, $16 delay from now in seconds (used when $15 is null), $17 priority,
-- $18 attempts, $19 max_attempts.
-- Returns last_id (where the next step starts), seen (matching jobs, locked or not), and for each task with changed jobs
-- task_identifier, jobs, failed (how many are permanently failed after the change) and ids; one row of zeros if none.
:include bulk_chosen
rescheduled as materialized (
    select job.id, job.task_id, job.is_available, job.run_at
    from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
        job_ids => array(select chosen.id from chosen),
        run_at => coalesce($15::timestamptz, now() + pg_catalog.make_interval(secs => $16::float8)),
        priority => $17::integer,
        attempts => $18::integer,
        max_attempts => $19::integer
    ) as job
),
:include told_of_rescheduled
,
changed as materialized (
    select job.id, job.task_id, job.is_available, null::json as kept, false as is_asked
    from rescheduled as job
    left join told on true
)
:include bulk_result
