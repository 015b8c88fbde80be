-- Add many jobs that have neither keys nor flags. The result is one row of lists, which is far cheaper to send and to
-- decode than a row per job, and holds only what the caller cannot know.
-- $1 to $7 columns of the specs as arrays of texts of equal length, or empty if no spec has a value: task
-- identifiers (one is enough if all are the same), payloads, queue names, run_at, delays from now in seconds (used
-- where run_at is null), max_attempts, priorities; $8 the signature of add_jobs, $9 the md5 of the body that this
-- package installs.
-- Returns is_ours (whether the function is ours, and so returns jobs in the order of the specs), ids, created_at,
-- task_id (any one), task_ids, job_queue_ids, run_at, max_attempts, priorities, all these lists as JSON text, and
-- payloads; a list is null if it is not needed.
with installed as materialized (
    select exists (
        select from pg_catalog.pg_proc
        where pg_proc.oid = pg_catalog.to_regprocedure($8::text)::oid
        and md5(pg_proc.prosrc) = $9::text
    ) as is_ours
)
select
    (select installed.is_ours from installed) as is_ours,
    pg_catalog.json_agg(job.id)::text as ids,
    date_part('epoch', now()) as created_at,
    min(job.task_id) as task_id,
    (pg_catalog.json_agg(job.task_id) filter (where pg_catalog.cardinality($1::text[]) > 1))::text as task_ids,
    (
        pg_catalog.json_agg(job.job_queue_id) filter (where pg_catalog.cardinality($3::text[]) > 0)
    )::text as job_queue_ids,
    (pg_catalog.json_agg(date_part('epoch', job.run_at)) filter (
        where pg_catalog.cardinality($4::text[]) > 0 or pg_catalog.cardinality($5::text[]) > 0
    ))::text as run_at,
    (pg_catalog.json_agg(job.max_attempts) filter (where pg_catalog.cardinality($6::text[]) > 0))::text as max_attempts,
    (pg_catalog.json_agg(job.priority) filter (where pg_catalog.cardinality($7::text[]) > 0))::text as priorities,
    pg_catalog.array_agg(job.payload::text) filter (where not (select installed.is_ours from installed)) as payloads
from :GRAPHILE_WORKER_SCHEMA.add_jobs(
    specs => array(
        select
            cast(row(
                coalesce(spec.identifier, ($1::text[])[1]),
                spec.payload::json,
                spec.queue_name,
                coalesce(spec.run_at::timestamptz, now() + pg_catalog.make_interval(secs => spec.delay::float8)),
                spec.max_attempts::smallint,
                null,
                spec.priority::smallint,
                null
            ) as :GRAPHILE_WORKER_SCHEMA.job_spec)
        from unnest(
            $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]
        ) with ordinality as spec
            (identifier, payload, queue_name, run_at, delay, max_attempts, priority, place)
        order by spec.place
    )
) as job
