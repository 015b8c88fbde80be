-- What jobs were before a change, and the way back.

-- statement: snapshot_jobs
-- Keep jobs as they are before a change. Call it in the transaction of the change, after locking them.
-- $1 id in the audit, $2 job ids.
-- Returns how many were kept.
with kept as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_before (audit_id, job_id, task, queue_name, job)
    select
        $1::bigint, job.id,
        coalesce((
            select tasks.identifier
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.id = job.task_id
        ), ''),
        (
            select job_queues.queue_name
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            where job_queues.id = job.job_queue_id
        ),
        pg_catalog.row_to_json(job)
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = any ($2::bigint[])
    on conflict (audit_id, job_id) do nothing
    returning job_id
)
select count(*) from kept

-- statement: snapshot_added
-- Remember jobs that an action added, so that an undo can delete them.
-- $1 id in the audit, $2 job ids.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_before (audit_id, job_id, task)
select $1::bigint, job.id, ''
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($2::bigint[])
on conflict (audit_id, job_id) do nothing

-- statement: finalize_snapshot
-- After a change: remember which version of each row it left, and forget jobs that it did not change.
-- $1 id in the audit, $2 job ids that were kept, $3 those that were changed.
with forgotten as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
    where kept.audit_id = $1::bigint
    and kept.job_id = any ($2::bigint[]) and kept.job_id <> all ($3::bigint[])
)
update :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
set changed_to = job.xmin::text
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where kept.audit_id = $1::bigint and kept.job_id = any ($3::bigint[]) and job.id = kept.job_id

-- statement: before_to_undo
-- The next jobs of an action that is undone.
-- $1 id in the audit, $2 the job id after which to start, $3 how many.
-- Returns job_id, changed_to, was_added.
select kept.job_id, kept.changed_to, kept.job is null as was_added
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
where kept.audit_id = $1::bigint and kept.job_id > $2::bigint
order by kept.job_id
limit $3::integer

-- statement: count_before
-- How many jobs of an action can be undone, counted up to a bound.
-- $1 id in the audit, $2 the bound.
select count(*)
from (
    select 1
    from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
    where kept.audit_id = $1::bigint
    limit $2::integer
) as found

-- statement: drop_before
-- Forget the jobs of an action that has changed too many of them: it cannot be undone.
-- $1 id in the audit.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept where kept.audit_id = $1::bigint

-- statement: purge_before
-- Forget jobs as they were before changes that are too long ago to be undone.
-- $1 seconds, $2 how many at most.
-- Returns how many were deleted.
with deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
    where kept.ctid = any (array(
        select old.ctid
        from :GRAPHILE_WORKER_SCHEMA._private_py_before as old
        where old.at < now() - pg_catalog.make_interval(secs => $1::double precision)
        order by old.at
        limit $2::integer
    ))
    returning 1
)
select count(*) from deleted

-- statement: job_versions
-- What changes when a job does, for jobs that are being looked at. Its revision would not tell that SQL or another runtime has
-- changed the priority.
--
-- $1 bigint[]  ids
-- Returns id and version, for the jobs that exist.
select jobs.id, jobs.xmin::text as version
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
where jobs.id = any ($1::bigint[])

-- statement: lock_versions
-- Lock jobs by id; returns which version of the row each one is, and whether it is running.
-- $1 job ids.
select job.id, job.xmin::text as version, job.locked_at is not null as is_running
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($1::bigint[])
order by job.id
for update

-- statement: restore_changed
-- Put jobs back to what they were. Lock them first.
-- $1 id in the audit, $2 job ids.
update :GRAPHILE_WORKER_SCHEMA._private_jobs as job
set
    payload = before.payload,
    priority = before.priority,
    run_at = before.run_at,
    attempts = before.attempts,
    max_attempts = before.max_attempts,
    last_error = before.last_error,
    key = before.key,
    revision = job.revision + 1,
    flags = before.flags,
    updated_at = before.updated_at -- else an old failure would be a new one
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
cross join lateral pg_catalog.json_populate_record(null:::GRAPHILE_WORKER_SCHEMA._private_jobs, kept.job) as before
where kept.audit_id = $1::bigint and kept.job_id = any ($2::bigint[]) and job.id = kept.job_id

-- statement: restore_deleted
-- Add deleted jobs again, under new ids. A job whose key another one has by now stays away.
-- $1 id in the audit, $2 job ids, $3 the name of the jobs table with its schema, quoted.
-- Returns job_id and new_id of those added.
with wanted as materialized (
    select
        kept.job_id,
        nextval(pg_get_serial_sequence($3::text, 'id'::text)::regclass) as new_id,
        (
            select tasks.id
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.identifier = kept.task
        ) as new_task_id,
        (
            select job_queues.id
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            where job_queues.queue_name = pg_catalog.regexp_replace(kept.queue_name, ' \[[1-9][0-9]*\]$', '')
        ) as new_queue_id,
        before.payload, before.priority, before.run_at, before.attempts, before.max_attempts, before.last_error,
        before.created_at, before.updated_at, before.key, before.revision, before.flags
    from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
    cross join lateral pg_catalog.json_populate_record(null:::GRAPHILE_WORKER_SCHEMA._private_jobs, kept.job) as before
    where kept.audit_id = $1::bigint and kept.job_id = any ($2::bigint[])
),
added as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_jobs
        (id, job_queue_id, task_id, payload, priority, run_at, attempts, max_attempts, last_error, created_at, updated_at,
         key, revision, flags)
    overriding system value
    select
        wanted.new_id, wanted.new_queue_id, wanted.new_task_id, wanted.payload, wanted.priority, wanted.run_at,
        wanted.attempts, wanted.max_attempts, wanted.last_error, wanted.created_at, wanted.updated_at, wanted.key,
        wanted.revision, wanted.flags
    from wanted
    on conflict do nothing
    returning id
)
select wanted.job_id, wanted.new_id
from wanted
where wanted.new_id in (select added.id from added)
order by wanted.job_id

-- statement: restore_tasks
-- Make the tasks of deleted jobs that come back, if they are gone.
-- $1 id in the audit, $2 job ids.
insert into :GRAPHILE_WORKER_SCHEMA._private_tasks (identifier)
select distinct kept.task
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
where kept.audit_id = $1::bigint and kept.job_id = any ($2::bigint[])
and not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks where tasks.identifier = kept.task
)
on conflict do nothing

-- statement: restore_queues
-- Make the queues of deleted jobs that come back, if they are gone.
-- $1 id in the audit, $2 job ids.
insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name)
select distinct pg_catalog.regexp_replace(kept.queue_name, ' \[[1-9][0-9]*\]$', '')
from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
where kept.audit_id = $1::bigint and kept.job_id = any ($2::bigint[]) and kept.queue_name is not null
and not exists (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    where job_queues.queue_name = pg_catalog.regexp_replace(kept.queue_name, ' \[[1-9][0-9]*\]$', '')
)
on conflict do nothing
