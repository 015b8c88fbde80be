-- The audit of what operators have done.

-- statement: record
-- Add a row to the audit.
-- $1 who, $2 how they signed in, $3 from where, $4 action, $5 target, $6 how many jobs, $7 ids of jobs, $8 details as JSON
-- text, $9 id of the operation or null.
-- Returns the row's id.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_audit
    (who, how, origin, action, target, jobs, job_ids, details, operation_id)
values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bigint, $7::bigint[], $8::text::json, $9::bigint)
returning id

-- statement: complete_record
-- Complete a row of the audit after the change.
-- $1 id in the audit, $2 how many jobs were changed in addition to those counted, $3 their ids, $4 the target or null.
update :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
set
    jobs = audit.jobs + $2::bigint,
    job_ids = $3::bigint[],
    target = coalesce($4::text, audit.target)
where audit.id = $1::bigint

-- statement: mark_undone
-- Note that an action is undone; it cannot be undone a second time.
-- $1 id of the action in the audit, $2 id of the undo.
-- Returns the id; no row if it was undone before.
update :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
set undone_by = $2::bigint
where audit.id = $1::bigint and audit.undone_by is null
returning audit.id

-- statement: get_audit_entry
-- One row of the audit.
-- $1 id.
select
:include audit_columns
where audit.id = $1::bigint

-- statement: list_audit
-- Rows of the audit, the latest first.
-- $1 who or null, $2 action or null, $3 and $4 the times from and before, or null, $5 the id before which to start, or
-- null, $6 how many.
select
:include audit_columns
where ($1::text is null or audit.who = $1::text)
and ($2::text is null or audit.action = $2::text)
and ($3::timestamptz is null or audit.at >= $3::timestamptz)
and ($4::timestamptz is null or audit.at < $4::timestamptz)
and audit.id < coalesce($5::bigint, 9223372036854775807)
order by audit.id desc
limit $6::integer

-- statement: list_audit_of_job
-- Rows of the audit about one job, the latest first: of actions on it by id, and of operations of the last 24 hours.
-- $1 job id, $2 the id before which to start, or null, $3 how many.
select
:include audit_columns
where audit.id = any (array(
    select found.id
    from (
        (
            select direct.id
            from :GRAPHILE_WORKER_SCHEMA._private_py_audit as direct
            where direct.job_ids operator(pg_catalog.@>) array[$1::bigint]
        )
        union
        (
            select kept.audit_id
            from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
            where kept.job_id = $1::bigint
        )
    ) as found
    where found.id < coalesce($2::bigint, 9223372036854775807)
    order by found.id desc
    limit $3::integer
))
order by audit.id desc

-- statement: actions_since
-- What people did through the dashboard, its API and the command line, the latest first.
--
-- $1 timestamptz  since when
-- $2 integer      at most this many
-- Returns at, who, action, target, jobs.
select audit.at, audit.who, audit.action, audit.target, audit.jobs
from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
where audit.at >= $1::timestamptz
order by audit.at desc
limit $2::integer

-- statement: audit_actions
-- Which actions are in the audit, by walking along the index.
with recursive found (action) as (
    (select audit.action from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit order by audit.action limit 1)
    union all
    select (
        select audit.action
        from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
        where audit.action > found.action
        order by audit.action
        limit 1
    )
    from found
    where found.action is not null
)
select found.action from found where found.action is not null limit 50

-- statement: audit_names
-- Who is in the audit, by walking along the index: names for the filter, 50 at most.
with recursive found (who) as (
    (select audit.who from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit order by audit.who limit 1)
    union all
    select (
        select audit.who
        from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
        where audit.who > found.who
        order by audit.who
        limit 1
    )
    from found
    where found.who is not null
)
select found.who from found where found.who is not null limit 50

-- statement: purge_audit
-- Delete old rows of the audit.
-- $1 seconds, $2 how many at most.
-- Returns how many were deleted.
with deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
    where audit.id = any (array(
        select old.id
        from :GRAPHILE_WORKER_SCHEMA._private_py_audit as old
        where old.at < now() - pg_catalog.make_interval(secs => $1::double precision)
        order by old.at
        limit $2::integer
    ))
    returning 1
)
select count(*) from deleted

-- statement: deleted_by_hand
-- Which of these jobs were deleted through the dashboard after an operation had changed them.
-- $1 job ids, $2 id of the operation in the audit.
select distinct kept.job_id
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
where kept.job_id = any ($1::bigint[]) and kept.audit_id > $2::bigint and kept.changed_to is null

-- part: audit_columns
    -- The columns of a row of the audit, and whether it can be undone.
    audit.id, audit.at, audit.who, audit.how, audit.origin, audit.action, audit.target, audit.jobs, audit.job_ids,
    audit.details::text as details, audit.operation_id, audit.undone_by,
    audit.undone_by is null and (
        audit.action in ('pause_queue', 'pause_task', 'pause_all')
        or exists (
            select from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept where kept.audit_id = audit.id
        )
    ) as can_undo
from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
