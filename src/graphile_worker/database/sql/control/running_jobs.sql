-- The jobs of queues that the pools which held these queues may still be running. Scans the jobs table.
--
-- $1 integer[]  queue ids
-- $2 text[]     the pool that held each queue
-- Returns their ids.
select job.id
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
join unnest($1::integer[], $2::text[]) as held (queue_id, holder)
  on held.queue_id = job.job_queue_id and held.holder = job.locked_by
where job.locked_at is not null
order by job.id
