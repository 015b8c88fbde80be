-- Add one job that is unique by its arguments, unless there is one.
-- $1 to $9: see add_job; $10 while which a job with the key counts: "waiting" or "waiting or running".
-- Returns the columns of the new or the existing job as add_job does, and whether it is new.
select
:include unique_job_columns
from :GRAPHILE_WORKER_SCHEMA._private_py_add_unique_job(
    $1::text,
    $2::text::json,
    $3::text,
    coalesce($4::timestamptz, now() + pg_catalog.make_interval(secs => $5::float8)),
    $6::integer,
    $7::text,
    $8::integer,
    $9::text[],
    $10::text,
    true
) as added
