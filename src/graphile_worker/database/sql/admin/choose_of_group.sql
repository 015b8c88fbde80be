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
