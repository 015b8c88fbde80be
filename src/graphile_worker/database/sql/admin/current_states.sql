-- How jobs stand, by id.
--
-- Ids near each other are read as one range: before PostgreSQL 17, a list of ids descends the index for each of them.
-- A range begins and ends with a wanted id, so an id without neighbours reads its own row only.
--
-- $1 bigint[]  job ids
select
    job.id, job.attempts, job.max_attempts, job.run_at,
    case
        when job.locked_at is not null then 'locked'
        when not job.is_available then 'failed'
        when job.attempts > 0 then 'retrying'
        else 'ready'
    end as state
from (
    select min(wanted.id) as first, max(wanted.id) as last
    from pg_catalog.unnest($1::bigint[]) as wanted (id)
    group by wanted.id >> 5
) as range
cross join lateral (
    select
        candidate.id, candidate.attempts, candidate.max_attempts, candidate.run_at, candidate.locked_at,
        candidate.is_available
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as candidate
    where candidate.id >= range.first and candidate.id <= range.last
    limit 32 -- as many as there are in a range; keeps the list of ids out of the index condition
) as job
where job.id = any ($1::bigint[])
order by job.id
