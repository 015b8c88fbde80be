-- Jobs by id, upwards.
-- $1 how many at most, $2 state, $3 task identifier, $4 queue name, $5 job key, $6 pool id that holds the job
-- (null in any of these lets all through),
-- $7 the id after which to go on, or null.
-- Returns the jobs' columns in the order of Job, then queue name and state.
:include job_details
where ($7::bigint is null or job.id > $7::bigint)
and (
    $2::text is null
    or $2::text = case
        when job.locked_at is not null then 'locked'
        when not job.is_available then 'failed'
        when job.run_at > now() then 'scheduled'
        else 'ready'
    end
)
and ($3::text is null or tasks.identifier = $3::text)
and ($4::text is null or job_queues.queue_name = $4::text)
and ($5::text is null or job.key = $5::text)
and ($6::text is null or job.locked_by = $6::text)
order by job.id
limit $1::integer
