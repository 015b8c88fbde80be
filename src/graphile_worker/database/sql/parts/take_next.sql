-- Part of write_outcomes and complete_and_take_next: lock the next job of each queue in `ended`, or unlock the queue.
-- The driver takes ten times as long to send an array of ten thousand numbers as one text.
task (ids) as materialized (select $3::text::integer[]),
-- Only queues of jobs that this statement has written: when a write is repeated because its answer was lost, the
-- queue may already be running another job of this pool.
held_queue as materialized (
  select id from :GRAPHILE_WORKER_SCHEMA._private_job_queues
  where locked_by = $1::text
    and id = any (array(select job_queue_id from ended where job_queue_id is not null))
),
-- An array of one queue instead of an equality: then only the index that starts with the queue provides this order, and
-- the planner cannot choose to read the jobs of all queues when it expects only a few.
next as materialized (
  select head.place
  from held_queue cross join lateral (
    select job.ctid as place
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[held_queue.id])
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
    for update skip locked
  ) head
),
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
  where job.ctid = any (array(select place from next))
  returning job.*
),
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1::text
    and queue.id = any (array(select id from held_queue except select job_queue_id from taken))
),
-- A queue that stays busy for hours must not look like a stale lock; a minute's precision is enough.
renewed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_at = coalesce($5::timestamptz, now())
  where queue.locked_at < coalesce($5::timestamptz, now()) - interval '1 minute'
    and queue.id = any (array(select job_queue_id from taken))
)
