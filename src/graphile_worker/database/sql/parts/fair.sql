-- Part of get_fair_jobs: the next job of each visited queue.
queued as materialized (
  select job.place, queue.id as job_queue_id, queue.id as old_queue_id, visited.step, 1 as turn
  from (select * from visited order by step) visited
  cross join lateral (
    select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
    where queue.id = visited.id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    -- The queue's id makes this run after the lock of the queue; see `queued`.
    select job.ctid as place from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[queue.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
    for update skip locked
  ) job
  limit $3
),
