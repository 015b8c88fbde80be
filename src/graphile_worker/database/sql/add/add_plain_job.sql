-- Add one job that has neither key nor queue; only outside a transaction, because the procedure may commit it.
-- $1 task identifier, $2 payload as JSON text, $3 run_at, $4 delay from now in seconds (used when $3 is null),
-- $5 max_attempts, $6 priority, $7 flags.
-- Returns one row: id (null, and nothing added, if the task has no row yet), flags, run_at, created_at, task_id.
call :GRAPHILE_WORKER_SCHEMA._private_py_add_plain_job(
    $1::text,
    $2::text::json,
    coalesce($3::timestamptz, now() + pg_catalog.make_interval(secs => $4::float8)),
    $5::integer,
    $6::integer,
    $7::text[],
    null,
    null,
    null,
    null,
    null
)
