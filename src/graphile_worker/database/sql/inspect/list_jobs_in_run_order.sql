-- Ready and scheduled jobs in the order in which workers take them; uses the index of the fetch.
-- $1 how many at most, $2 to $11 the conditions of parts/matching_jobs,
-- $12, $13, $14 priority, run_at (seconds since 1970) and id of the last job of the previous page, or null.
-- The line ":conditions" is replaced by further conditions (parts/listed_...) in the form that an index can serve: in a
-- generic plan, a condition that depends on a parameter cannot use a partial index.
-- Returns the jobs' columns in the order of Job, then queue name, state and time of the failure.
:include job_details
where job.is_available = true
and (
    $12::integer is null
    or (job.priority, job.run_at, job.id) > ($12::integer, to_timestamp($13::float8), $14::bigint)
)
:include matching_jobs
-- :conditions
order by job.priority, job.run_at, job.id
limit $1::integer
