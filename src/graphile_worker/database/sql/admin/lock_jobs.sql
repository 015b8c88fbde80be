-- Lock jobs by id, in the order of their ids, so that two callers cannot wait for each other; see how they stand.
-- $1 job ids.
select
    job.id, job.attempts, job.max_attempts, job.locked_by,
    case
        when job.locked_at >= now() - interval '4 hours' then 'locked'
        when not job.is_available and job.locked_at is null then 'failed'
        when job.run_at > now() then 'scheduled'
        else 'ready'
    end as state
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($1::bigint[])
order by job.id
for update
