-- One job.
-- $1 its id.
-- Returns the jobs' columns in the order of Job, then queue name, state and time of the failure.
:include job_details
where job.id = $1::bigint
