-- How many jobs of limited tasks are ready: one look for all limits of a worker. Locks nothing.
--
-- $1 text         ids of the tasks, as an array literal such as {1,2}
-- $2 integer      read at most this many jobs without a queue, and as many of named queues
-- $3 timestamptz  the worker's time, or null for the server's
-- Returns task_id, priority, the last run_at (seconds since 1970), is_queued and how many; whether a queue is free is not asked.
with recursive
task (ids) as materialized (select $1::text::integer[]),
:include plain_priority
,
plain as materialized (
  select found.task_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.task_id, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($3::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
    order by job.run_at
    limit $2::integer
  ) found
  limit $2
),
:include ready_in_queues
