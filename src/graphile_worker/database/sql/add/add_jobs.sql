-- Add many jobs, with any options.
-- $1 to $9 columns of the specs as arrays of texts of equal length, or empty if no spec has a value: task
-- identifiers, payloads, queue names, run_at, delays from now in seconds (used where run_at is null), max_attempts,
-- job keys, priorities, flags (each the text of an array); $10 whether a waiting job with the same key keeps its
-- run_at; $11 the signature of add_jobs, $12 the md5 of the body that this package installs.
-- Returns the jobs' columns in the order of Job, without the task identifier, and is_ours: whether the function is
-- ours, and so returns jobs in the order of the specs.
with installed as materialized (
    select exists (
        select from pg_catalog.pg_proc
        where pg_proc.oid = pg_catalog.to_regprocedure($11::text)::oid
        and md5(pg_proc.prosrc) = $12::text
    ) as is_ours
)
select
:include job_columns
    (select installed.is_ours from installed) as is_ours
from :GRAPHILE_WORKER_SCHEMA.add_jobs(
    specs => array(
        select
            cast(row(
                spec.identifier,
                spec.payload::json,
                spec.queue_name,
                coalesce(spec.run_at::timestamptz, now() + pg_catalog.make_interval(secs => spec.delay::float8)),
                spec.max_attempts::smallint,
                spec.job_key,
                spec.priority::smallint,
                spec.flags::text[]
            ) as :GRAPHILE_WORKER_SCHEMA.job_spec)
        from unnest(
            $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]
        ) with ordinality as spec
            (identifier, payload, queue_name, run_at, delay, max_attempts, job_key, priority, flags, place)
        order by spec.place
    ),
    job_key_preserve_run_at => $10::boolean
) as job
