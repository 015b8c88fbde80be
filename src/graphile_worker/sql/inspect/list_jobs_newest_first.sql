-- Jobs by id, downwards.
-- $1 how many at most, $2 task identifier, $3 queue name, $4 job key, $5 pool id that holds the job
-- (null in any of these lets all through),
-- $6 the id after which to go on, or null.
-- The line ":conditions" gives way to what else is asked for (parts/listed_…), in words that fit an index: a
-- condition that depends on a parameter would not be seen through by a plan that serves all values.
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
