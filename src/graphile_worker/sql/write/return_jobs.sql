-- Give back jobs that were locked but not run to their end: the attempt does not count, the queue is freed.
--
-- $1 text      pool id; jobs that another pool holds by now are left alone
-- $2 bigint[]  job ids
-- $3 text      what to note as last_error, or null to leave it
-- $4 integer[] queues that these jobs held
-- $5 float8    seconds from now, at least, until they run again; 0 leaves run_at as it is
-- Returns the ids that were unlocked, and whether each can run again: one that was removed or replaced by its key
-- meanwhile cannot. Other workers are told, since a job that is back is as good as a new one.
with returned as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
    attempts = case -- one that was replaced by its key meanwhile does not come back (see recover_jobs)
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
      else greatest(0, job.attempts - 1)
    end,
    last_error = coalesce($3::text, job.last_error),
    run_at = case
      when $5::double precision > 0::double precision
        then greatest(job.run_at, now() + $5 * interval '1 second')
      else job.run_at
    end,
    locked_by = null,
    locked_at = null
  where job.id = any ($2::bigint[]) and job.locked_by = $1::text
  returning job.id, job.job_queue_id, job.is_available
),
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.id = any ($4::integer[]) and queue.locked_by = $1
    and queue.id in (select job_queue_id from returned)
),
told as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from returned where is_available having count(*) > 0
)
select returned.id, returned.is_available from returned left join told on true
