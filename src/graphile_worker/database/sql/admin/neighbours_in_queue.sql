-- Waiting jobs of a queue before and after one, in the order in which they run.
-- $1 integer  the id of the queue
-- $2 integer  priority, $3 float8 run_at (seconds since 1970) and $4 bigint id of the job
-- $5 integer  how many at most in each direction
-- Returns id, is_before; in run order.
select found.id, found.is_before
from (
    (
        select job.id, job.priority, job.run_at, true as is_before
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available and job.job_queue_id is not null and job.job_queue_id = $1::integer
        and (job.priority, job.run_at) <= ($2::integer, to_timestamp($3::float8)) and job.id <> $4::bigint
        order by job.job_queue_id desc, job.priority desc, job.run_at desc
        limit $5::integer
    )
    union all
    (
        select job.id, job.priority, job.run_at, false
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available and job.job_queue_id is not null and job.job_queue_id = $1::integer
        and (job.priority, job.run_at) > ($2::integer, to_timestamp($3::float8)) and job.id <> $4::bigint
        order by job.job_queue_id, job.priority, job.run_at
        limit $5::integer
    )
) as found
order by found.priority, found.run_at, found.id
