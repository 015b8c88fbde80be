-- How jobs stand, by id.
-- $1 job ids.
select
    job.id, job.attempts, job.max_attempts, job.run_at,
    case
        when job.locked_at is not null then 'locked'
        when not job.is_available then 'failed'
        when job.attempts > 0 then 'retrying'
        else 'ready'
    end as state
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($1::bigint[])
