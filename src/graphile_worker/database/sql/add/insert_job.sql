-- Add one job that has neither key nor queue, and notify workers, unless another client is about to notify, too:
-- PostgreSQL commits only one notifying transaction at a time. Only outside a transaction, which would keep the lock.
-- $1 task identifier, $2 payload as JSON text, $3 run_at, $4 delay from now in seconds (used when $3 is null),
-- $5 max_attempts, $6 priority, $7 flags as JSON text, each a key whose value is true.
-- Returns id, flags, run_at, created_at, task_id, and whether workers were notified; no row, and nothing is added, if
-- the task has no row yet.
with added as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_jobs (task_id, payload, run_at, max_attempts, priority, flags)
    select
        tasks.id,
        $2::text::json,
        coalesce($3::timestamptz, now() + pg_catalog.make_interval(secs => $4::float8), now()),
        coalesce($5::integer::smallint, 25::smallint),
        coalesce($6::integer::smallint, 0::smallint),
        $7::text::jsonb
    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    where tasks.identifier = $1::text
    returning id, flags, run_at, created_at, task_id
)
select
    id,
    flags::text,
    date_part('epoch', run_at),
    date_part('epoch', created_at),
    task_id,
    case
        when pg_try_advisory_xact_lock(7231964501297834)
            then pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}')::text is not null
        else false
    end
from added
