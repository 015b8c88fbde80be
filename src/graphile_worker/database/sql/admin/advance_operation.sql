-- Note what a step of an operation has done.
-- $1 id, $2 last_id, $3 last_at or null, $4 jobs changed in the step, $5 skipped, $6 succeeded, $7 ids to watch,
-- $8 jobs kept for an undo, $9 stage, $10 the final state or null, $11 a note or null.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set
    last_id = $2::bigint,
    last_at = coalesce($3::timestamptz, operation.last_at),
    changed = operation.changed + $4::bigint,
    skipped = operation.skipped + $5::bigint,
    succeeded = operation.succeeded + $6::bigint,
    watched = $7::bigint[],
    kept = operation.kept + $8::bigint,
    stage = $9::text,
    state = coalesce($10::text, operation.state),
    note = coalesce($11::text, operation.note),
    updated_at = clock_timestamp(),
    finished_at = case when $10::text is not null then clock_timestamp() end
where operation.id = $1::bigint
