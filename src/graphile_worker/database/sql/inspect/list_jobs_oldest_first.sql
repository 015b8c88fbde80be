-- Jobs by ascending id.
-- $1 how many at most, $2 to $11 the conditions of parts/matching_jobs,
-- $12 the last id of the previous page, or null.
-- The line ":conditions" is replaced by further conditions (parts/listed_...) in the form that an index can serve: in a
-- generic plan, a condition that depends on a parameter cannot use a partial index.
-- Returns the jobs' columns in the order of Job, then queue name, state and time of the failure.
:include job_details
where job.id > coalesce($12::bigint, '-9223372036854775808'::bigint)
:include matching_jobs
-- :conditions
order by job.id
limit $1::integer
