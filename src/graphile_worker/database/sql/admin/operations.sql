-- Bulk operations of the dashboard that run in steps.

-- statement: start_operation
-- Add an operation, leased to the dashboard that carries it out.
-- $1 id in the audit, $2 action, $3 arguments as JSON text, $4 the chosen jobs as JSON text, $5 target, $6 rate or null,
-- $7 stage, $8 expected, $9 its kind, $10 the highest id, $11 runner, $12 seconds of the lease.
-- Returns the operation's id.
with added as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_operations
        (audit_id, action, arguments, chosen, target, rate, stage, expected, expected_kind, up_to, runner, lease_until)
    values (
        $1::bigint, $2::text, $3::text::json, $4::text::json, $5::text, $6::double precision, $7::text, $8::bigint,
        $9::text, $10::bigint, $11::text,
        clock_timestamp() + pg_catalog.make_interval(secs => $12::double precision)
    )
    returning id, audit_id
),
linked as (
    update :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
    set operation_id = added.id
    from added
    where audit.id = added.audit_id
)
select added.id from added

-- statement: claim_operation
-- Take over an operation whose dashboard is gone.
-- $1 id, $2 runner, $3 seconds of the lease.
-- Returns the id; no row if it has ended or another dashboard has it.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set
    runner = $2::text,
    lease_until = clock_timestamp() + pg_catalog.make_interval(secs => $3::double precision)
where operation.id = $1::bigint
and operation.finished_at is null
and (operation.runner is null or operation.runner = $2::text or operation.lease_until < clock_timestamp())
returning operation.id

-- statement: lock_operation
-- Lock an operation for its next step, if this dashboard still carries it out; renews the lease.
-- $1 id, $2 runner, $3 seconds of the lease.
-- Returns the id; no row if it has ended or another dashboard has it.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set lease_until = clock_timestamp() + pg_catalog.make_interval(secs => $3::double precision)
where operation.id = $1::bigint and operation.runner = $2::text and operation.finished_at is null
returning operation.id

-- statement: advance_operation
-- Note what a step of an operation has done.
-- $1 id, $2 last_id, $3 jobs changed in the step, $4 skipped, $5 succeeded, $6 ids to watch, $7 jobs kept for an undo,
-- $8 stage, $9 the final state or null, $10 a note or null.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set
    last_id = $2::bigint,
    changed = operation.changed + $3::bigint,
    skipped = operation.skipped + $4::bigint,
    succeeded = operation.succeeded + $5::bigint,
    watched = $6::bigint[],
    kept = operation.kept + $7::bigint,
    stage = $8::text,
    state = coalesce($9::text, operation.state),
    note = coalesce($10::text, operation.note),
    updated_at = clock_timestamp(),
    finished_at = case when $9::text is not null then clock_timestamp() end
where operation.id = $1::bigint

-- statement: stop_operation
-- Ask for an operation to be stopped after the current step.
-- $1 id.
-- Returns the id; no row if it has ended.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set state = 'stopping', updated_at = now()
where operation.id = $1::bigint and operation.finished_at is null
returning operation.id

-- statement: fail_operation
-- End an operation that cannot go on.
-- $1 id, $2 runner, $3 why.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set state = 'failed', note = $3::text, updated_at = clock_timestamp(), finished_at = clock_timestamp()
where operation.id = $1::bigint and operation.runner = $2::text and operation.finished_at is null

-- statement: release_operations
-- Let go of the operations of a dashboard that ends, so that another one can go on at once.
-- $1 runner.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set runner = null, lease_until = null
where operation.runner = $1::text and operation.finished_at is null

-- statement: active_operations
-- Operations that have not ended.
select
:include operation_columns
where operation.finished_at is null
order by operation.id
limit 100

-- statement: get_operation
-- One operation.
-- $1 id.
select
:include operation_columns
where operation.id = $1::bigint

-- statement: list_operations
-- Operations, the latest first.
-- $1 the id before which to start, or null, $2 how many.
select
:include operation_columns
where operation.id < coalesce($1::bigint, 9223372036854775807)
order by operation.id desc
limit $2::integer

-- statement: highest_id
-- The id of the job that was added last; null without any.
select max(job.id) from :GRAPHILE_WORKER_SCHEMA._private_jobs as job

-- statement: purge_operations
-- Delete operations that ended long ago.
-- $1 seconds, $2 how many at most.
-- Returns how many were deleted.
with deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
    where operation.id = any (array(
        select old.id
        from :GRAPHILE_WORKER_SCHEMA._private_py_operations as old
        where old.finished_at < now() - pg_catalog.make_interval(secs => $1::double precision)
        order by old.id
        limit $2::integer
    ))
    returning 1
)
select count(*) from deleted

-- statement: watched_jobs
-- How jobs that were retried stand.
-- $1 job ids.
-- Returns those that still exist: id, is_running, has_failed (an attempt since), last_error.
select
    job.id,
    job.locked_at is not null as is_running,
    job.locked_at is null and job.attempts > 0 as has_failed,
    pg_catalog."left"(job.last_error, 2000) as last_error
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($1::bigint[])
order by job.id

-- statement: other_finished_jobs
-- Which of these jobs have ended since a time without completing, as far as they were kept.
-- $1 job ids, $2 the time.
-- Returns, for each, its latest end: id, state and last_error.
select wanted.id, last_finished.state, pg_catalog."left"(last_finished.error, 2000) as last_error
from pg_catalog.unnest($1::bigint[]) as wanted (id)
cross join lateral (
    select history.state, history.error
    from :GRAPHILE_WORKER_SCHEMA._private_py_history as history
    where history.job_id = wanted.id and history.finished_at >= $2::timestamptz
    order by date_part('epoch', history.finished_at) desc -- not the column, whose index would be read to its end
    limit 1
) as last_finished
where last_finished.state <> 'completed'
order by wanted.id

-- statement: forget_kept
-- Note that an operation has changed too many jobs to keep them: it cannot be undone.
-- $1 id of the operation.
update :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
set kept = 0
where operation.id = $1::bigint

-- part: operation_columns
    -- The columns of an operation with its row in the audit.
    operation.id, operation.audit_id, operation.action, operation.arguments::text as arguments,
    operation.chosen::text as chosen, operation.target, operation.rate, operation.state, operation.stage,
    operation.expected, operation.expected_kind, operation.up_to, operation.last_id,
    operation.changed, operation.skipped, operation.succeeded, operation.watched, operation.kept, operation.note,
    operation.created_at, operation.updated_at, operation.finished_at, operation.runner, operation.lease_until,
    audit.who, audit.how, audit.origin, audit.undone_by,
    clock_timestamp() as read_at
from :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
left join :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit on audit.id = operation.audit_id
