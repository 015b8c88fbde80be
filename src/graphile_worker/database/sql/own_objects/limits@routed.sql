-- The fetch function of own_objects/limits.sql for workers that take jobs by their flags: one of the accepted flags, or only
-- flags of an allowlist. A function of its own, so that other workers do not pay for these rules.
--
-- It includes parts of other fetches. If one of them changes, this file needs a new number;
-- tests/migrations/test_mended_objects.py notices.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_get_limited_jobs_by_flags(
    pool_id text,
    task_ids text, -- an array literal such as {1,2}
    wanted integer,
    flag_rules text[], -- three array literals: see the part flag_rules@routed
    worker_time timestamptz, -- or null for the server's
    lowest smallint[], -- ranges of priorities to read, as for get_jobs_above_watermarks; or null
    highest smallint[],
    since double precision[],
    limit_names text[],
    is_wide boolean -- whether there are wide queues; see get_jobs for them
)
returns table (
    id bigint, payload text, priority smallint, run_at double precision, attempts smallint, max_attempts smallint,
    last_error text, created_at double precision, updated_at double precision, key text, locked_at double precision,
    revision integer, flags text, task_id integer, job_queue_id integer
)
language plpgsql
as $body$
:include limited_jobs
$body$;
