-- Errors of failed jobs, by group.

-- statement: failed_errors @newest
-- Permanently failed jobs with their last errors, the newest first, along their index; in the variant `newest`, where that
-- index is missing, those among the newest jobs.
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
    standing.failed_at
from (
    select
        job.id, job.task_id, job.last_error, job.attempts, job.run_at, job.updated_at,
        job.is_available, job.locked_at
:include newest_failed
) as job
:include back_off
:include standing
where not job.is_available and job.locked_at is null
order by job.id desc

-- statement: recent_errors
-- The latest errors of all jobs.
-- $1 the earliest time, $2 how many.
select
:include error_of_group
from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
where error.failed_at >= $1::timestamptz
order by error.failed_at desc
limit $2::integer

-- statement: recent_errors_of_group
-- The latest errors of one group.
-- $1 the earliest time, $2 how many, $3 fingerprint.
select
:include error_of_group
from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
where error.fingerprint = $3::text and error.failed_at >= $1::timestamptz
order by error.failed_at desc
limit $2::integer

-- statement: errors_of_failed @newest
-- What permanently failed jobs failed with, the newest ones, along their index; in the variant `newest`, where that index
-- is missing, those among the newest jobs. Texts that differ in digits only are one.
-- $1 how many jobs to read.
-- Returns seen (how many jobs were read), and task_identifier, state, error and jobs: one row with nulls if there are none.
with read as materialized (
    select job.task_id, job.last_error, job.is_available, job.locked_at
:include newest_failed
),
counted as materialized (
    select job.task_id, 'failed' as state,
:include error_text
    as error, count(*) as jobs
    from read as job
    where not job.is_available and job.locked_at is null
    group by 1, 2, 3
)
:include counted_errors

-- statement: errors_of_waiting
-- What jobs failed with that wait for another attempt, ready or not. Texts that differ in digits only are one.
-- $1 how many waiting jobs of each priority to read.
-- Returns seen (how many waiting jobs were read), and task_identifier, state, error and jobs: one row with nulls if there
-- are none.
with recursive
beginning (priority) as (select (-32768)::smallint),
:include first_of_priority
,
read as materialized (
    select job.*
    from first_of_priority
    cross join lateral (
        select job.task_id, job.attempts, job.last_error
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available = true
        and (job.priority, job.run_at) >= (first_of_priority.priority, '-infinity'::timestamptz)
        and (job.priority, job.run_at) <= (first_of_priority.priority, 'infinity'::timestamptz)
        order by job.priority, job.run_at
        limit $1::integer
    ) as job
    limit $1::integer
),
counted as materialized (
    select job.task_id, 'retrying' as state,
:include error_text
    as error, count(*) as jobs
    from read as job
    where job.attempts > 0
    group by 1, 2, 3
)
:include counted_errors

-- statement: errors_in_sample
-- What failed and waiting jobs failed with, in a part of the table: the same part as long as the table is as large.
-- $1 the percentage of the table's pages.
-- Returns seen (how many jobs were read), and task_identifier, state, error and jobs: one row with nulls if there are none.
with read as materialized (
    select job.task_id, job.is_available, job.last_error
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job tablesample system ($1::real) repeatable (0::double precision)
    where job.attempts > 0 and job.locked_at is null
),
counted as materialized (
    select job.task_id, case when job.is_available then 'retrying' else 'failed' end as state,
:include error_text
    as error, count(*) as jobs
    from read as job
    group by 1, 2, 3
)
:include counted_errors

-- statement: next_with_error
-- The next jobs of a task that have failed before, by ascending id. It locks nothing.
-- $1 the task, $2 the id after which to start, $3 the highest id, $4 how many jobs at most, $5 how many jobs of all tasks
-- to read at most.
-- Returns last_id (how far it has read; null at the end), and id, is_running and error of each job: one row with nulls if
-- none was found.
with read as materialized (
    select job.id, job.task_id, job.attempts, job.locked_at, job.last_error
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id > $2::bigint and job.id <= $3::bigint
    order by job.id
    limit $5::integer
),
found as materialized (
    select job.id, job.locked_at is not null as is_running,
:include error_text
    as error
    from read as job
    where job.attempts > 0 and job.last_error is not null
    and job.task_id = (
        select tasks.id from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks where tasks.identifier = $1::text
    )
    order by job.id
    limit $4::integer
),
step as materialized (
    select case
        when (select count(*) from found) >= $4::integer then (select max(found.id) from found)
        when (select count(*) from read) >= $5::integer then (select max(read.id) from read)
    end as last_id
)
select step.last_id, found.id, found.is_running, found.error
from step
left join found on true
order by found.id

-- statement: latest_errors_of_jobs
-- Which group the latest kept error of each of these jobs is of.
-- $1 job ids.
select wanted.id, latest.fingerprint
from pg_catalog.unnest($1::bigint[]) as wanted (id)
cross join lateral (
    select error.fingerprint
    from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
    where error.job_id = wanted.id
    order by error.failed_at desc
    limit 1
) as latest

-- statement: jobs_of_kept_errors
-- Jobs that have failed, are not running, and whose latest kept error is of a group.
-- $1 fingerprint, $2 how many errors to read.
-- Returns id, state and error.
select job.id, case when job.is_available then 'retrying' else 'failed' end as state,
:include error_text
as error
from (
    select distinct error.job_id
    from (
        select error.job_id
        from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
        where error.fingerprint = $1::text
        order by error.failed_at desc
        limit $2::integer
    ) as error
) as seen
cross join lateral (
    select job.id, job.is_available, job.last_error
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = seen.job_id and job.locked_at is null and job.attempts > 0
    limit 1
) as job
where $1::text = (
    select error.fingerprint
    from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
    where error.job_id = seen.job_id
    order by error.failed_at desc
    limit 1
)

-- part: error_text
    -- The last error of `job`: its beginning, and the place that follows a long message.
    pg_catalog.translate(
        case
            when pg_catalog.octet_length(job.last_error) <= 600 then job.last_error
            else pg_catalog."left"(job.last_error, 500)
            || coalesce(pg_catalog."substring"(job.last_error, '\n  at [^\n]+, line [0-9]+, in [^\n]+'), '')
        end,
        '123456789', '000000000'
    )

-- part: error_of_group
    error.fingerprint, error.job_id, error.failed_at, error.pool_id, error.version,
    case
        when pg_catalog.octet_length(error.message) <= 600 then error.message
        else pg_catalog."left"(error.message, 500)
        || coalesce(pg_catalog."substring"(error.message, '\n  at [^\n]+, line [0-9]+, in [^\n]+'), '')
    end as error

-- part: newest_failed
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where not job.is_available and job.locked_at is null
    order by job.id desc
    limit $1::integer

-- part: newest_failed@newest
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    order by job.id desc
    limit $1::integer

-- part: counted_errors
select
    seen.jobs as seen, coalesce(tasks.identifier, '') as task_identifier, counted.state, counted.error, counted.jobs
from (select count(*) as jobs from read) as seen
left join counted on true
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id

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
