-- Jobs by descending id.
-- $1 how many at most, $2 task identifier, $3 queue name, $4 job key, $5 pool id that holds the job
-- (null means any),
-- $6 the last id of the previous page, or null.
-- The line ":conditions" is replaced by further conditions (parts/listed_…) in the form that an index can serve: in a
-- generic plan, a condition that depends on a parameter cannot use a partial index.
-- Returns the jobs' columns in the order of Job, then queue name and state.
:include job_details
where job.id < coalesce($6::bigint, '9223372036854775807'::bigint)
and ($2::text is null or tasks.identifier = $2::text)
and ($3::text is null or job_queues.queue_name = $3::text)
and ($4::text is null or job.key = $4::text)
and ($5::text is null or job.locked_by = $5::text)
-- :conditions
order by job.id desc
limit $1::integer
