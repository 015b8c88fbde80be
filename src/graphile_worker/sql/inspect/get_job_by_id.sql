-- One job.
-- $1 its id.
-- Returns the jobs' columns in the order of Job, then queue name and state.
:include job_details
where job.id = $1::bigint
