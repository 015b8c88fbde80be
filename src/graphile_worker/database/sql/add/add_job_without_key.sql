-- Add one job that has no key. Returns only what the client cannot know: drivers and libraries do some work for each
-- column of a result.
-- $1 task identifier, $2 payload as JSON text, $3 queue name, $4 run_at, $5 delay from now in seconds (used
-- when $4 is null), $6 max_attempts, $7 priority, $8 flags.
-- Returns id, run_at, created_at, flags, task_id, job_queue_id.
select
    job.id,
    date_part('epoch', job.run_at) as run_at,
    date_part('epoch', job.created_at) as created_at,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id
from :GRAPHILE_WORKER_SCHEMA.add_job(
    identifier => $1::text,
    payload => $2::text::json,
    queue_name => $3::text,
    run_at => coalesce($4::timestamptz, now() + pg_catalog.make_interval(secs => $5::float8)),
    max_attempts => $6::integer,
    priority => $7::integer,
    flags => $8::text[]
) as job
