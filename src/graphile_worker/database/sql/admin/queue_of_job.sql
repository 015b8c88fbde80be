-- The queue of a job: who has locked it, how wide it is, and the tracks of a wide one.
-- $1 integer  the id of the queue, or of a track
-- Returns for the queue and each track: id, name, locked_by, locked_at (seconds since 1970), is_home; none without a queue.
with home as materialized (
    select pg_catalog.regexp_replace(own.queue_name, ' \[[1-9][0-9]*\]$', '') as name
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as own
    where own.id = $1::integer
)
select
    job_queues.id,
    home.name,
    job_queues.locked_by,
    date_part('epoch', job_queues.locked_at) as locked_at,
    job_queues.queue_name = home.name as is_home
from home
join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    on job_queues.queue_name = home.name
    or job_queues.queue_name = any (array(
        select home.name || ' [' || number::text || ']' from home, pg_catalog.generate_series(2, 100) as number
    ))
order by job_queues.queue_name
