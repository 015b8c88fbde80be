-- Names of queues that begin with a text, in a bounded part of their index.
-- $1 text     the beginning
-- $2 integer  how many at most
-- Returns name.
select found.name
from (
    select job_queues.queue_name as name
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    where job_queues.queue_name >= $1::text
    order by job_queues.queue_name
    limit 1000
) as found
where pg_catalog.starts_with(found.name, $1::text) and found.name !~ ' \[[1-9][0-9]*\]$' -- tracks of wide queues
order by found.name
limit $2::integer
