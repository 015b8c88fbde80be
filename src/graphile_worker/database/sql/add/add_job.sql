-- Add one job with a key, or update the one with the same key.
-- $1 task identifier, $2 payload as JSON text, $3 queue name, $4 run_at, $5 delay from now in seconds (used
-- when $4 is null), $6 max_attempts, $7 job key, $8 priority, $9 flags, $10 job key mode.
-- Returns the job's columns in the order of Job, without the task identifier. All columns are null if the add got
-- lost, which happens on a schema that Node installed.
select
    job.id,
    job.payload::text as payload,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    job.last_error,
    date_part('epoch', job.created_at) as created_at,
    date_part('epoch', job.updated_at) as updated_at,
    job.key,
    date_part('epoch', job.locked_at) as locked_at,
    job.revision,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id,
    job.locked_by
from :GRAPHILE_WORKER_SCHEMA.add_job(
    identifier => $1::text,
    payload => $2::text::json,
    queue_name => $3::text,
    run_at => coalesce($4::timestamptz, now() + pg_catalog.make_interval(secs => $5::float8)),
    max_attempts => $6::integer,
    job_key => $7::text,
    priority => $8::integer,
    flags => $9::text[],
    job_key_mode => $10::text
) as job
