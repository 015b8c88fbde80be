-- Errors of failed jobs, by group.

-- statement: failed_errors
-- Permanently failed jobs with their last errors, the newest first, along the index of failed jobs.
-- $1 how many.
select
    job.id,
    coalesce(
        (
            select tasks.identifier
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.id = job.task_id
        ),
        ''
    ) as task_identifier,
    pg_catalog."left"(job.last_error, 4000) as last_error,
    job.failed_at
from (
    select job.id, job.task_id, job.last_error, standing.failed_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing
    where not job.is_available and job.locked_at is null
    order by job.id desc
    limit $1::integer
) as job

-- statement: failed_errors_of_newest
-- The same without that index: the permanently failed ones among the newest jobs.
-- $1 how many jobs to read.
select
    job.id,
    coalesce(
        (
            select tasks.identifier
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.id = job.task_id
        ),
        ''
    ) as task_identifier,
    pg_catalog."left"(job.last_error, 4000) as last_error,
    job.failed_at
from (
    select job.id, job.task_id, job.last_error, job.is_available, job.locked_at, standing.failed_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing
    order by job.id desc
    limit $1::integer
) as job
where not job.is_available and job.locked_at is null

-- statement: recent_errors
-- The latest errors of all jobs, without their texts.
-- $1 the earliest time, $2 how many.
select error.fingerprint, error.job_id, error.failed_at, error.pool_id, error.version
from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
where error.failed_at >= $1::timestamptz
order by error.failed_at desc
limit $2::integer

-- statement: recent_errors_of_group
-- The latest errors of one group, without their texts.
-- $1 the earliest time, $2 how many, $3 fingerprint.
select error.fingerprint, error.job_id, error.failed_at, error.pool_id, error.version
from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
where error.fingerprint = $3::text and error.failed_at >= $1::timestamptz
order by error.failed_at desc
limit $2::integer

-- statement: choose_of_group
-- One step over the jobs of an error group, in the order in which their attempts failed: those that are not running and
-- whose latest error is of this group. It locks nothing.
-- $1 fingerprint, $2 and $3 the time and job id after which to start, $4 the latest time, $5 how many errors to read,
-- $6 how many jobs at most.
-- Returns one row: seen (errors read), last_at and last_id (of the last one), ids and times (the jobs and their errors).
with seen as materialized (
    select error.job_id, error.failed_at
    from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
    where error.fingerprint = $1::text
    and error.failed_at >= $2::timestamptz and error.failed_at <= $4::timestamptz
    and (error.failed_at > $2::timestamptz or error.job_id > $3::bigint)
    order by error.failed_at, error.job_id
    limit $5::integer
),
found as materialized (
    select seen.job_id, seen.failed_at
    from seen
    where (
        select job.attempts
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.id = seen.job_id and job.locked_at is null
    ) > 0::smallint
    and $1::text = (
        select error.fingerprint
        from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
        where error.job_id = seen.job_id
        order by error.failed_at desc
        limit 1
    )
    order by seen.failed_at, seen.job_id
    limit $6::integer
)
select
    (select count(*) from seen) as seen,
    (select seen.failed_at from seen order by seen.failed_at desc, seen.job_id desc limit 1) as last_at,
    (select seen.job_id from seen order by seen.failed_at desc, seen.job_id desc limit 1) as last_id,
    array(select found.job_id from found order by found.failed_at, found.job_id) as ids,
    array(select found.failed_at from found order by found.failed_at, found.job_id) as times

-- statement: mute_error
-- Do not show an error group until it occurs in another version, or until a time.
-- $1 fingerprint, $2 version or null, $3 until or null, $4 who, $5 reason.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_muted_errors as muted (fingerprint, version, until, who, reason)
values ($1::text, $2::text, $3::timestamptz, $4::text, $5::text)
on conflict (fingerprint) do update
set version = excluded.version, until = excluded.until, who = excluded.who, reason = excluded.reason, at = now()

-- statement: unmute_error
-- Show an error group again.
-- $1 fingerprint.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_muted_errors as muted
where muted.fingerprint = $1::text
returning muted.fingerprint

-- statement: muted_errors
-- Error groups that are not shown.
select muted.fingerprint, muted.version, muted.until, muted.who, muted.reason, muted.at
from :GRAPHILE_WORKER_SCHEMA._private_py_muted_errors as muted
order by muted.at desc
limit 1000
