-- Lock the next jobs for a pool after one was announced, if all have the same priority and none waits in a named queue;
-- lock none otherwise. The fast path of get_plain_jobs, which spends a fifth of its time on finding no other priority
-- and no named queue.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      limit
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns the columns of a job, unordered.
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (
  array(
    select next.ctid
    from :GRAPHILE_WORKER_SCHEMA._private_jobs next
    where next.is_available and next.job_queue_id is null
      and next.priority = (
        select lowest.priority
        from (
          select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
          where is_available and job_queue_id is null
          order by priority limit 1
        ) lowest
        cross join (
          select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
          where is_available and job_queue_id is null
          order by priority desc limit 1
        ) highest
        where lowest.priority = highest.priority
          and not exists (
            select from :GRAPHILE_WORKER_SCHEMA._private_jobs where is_available and job_queue_id is not null
          )
      )
      and next.run_at <= coalesce($5::timestamptz, now())
      and next.task_id = any ((select $2::text::integer[])::integer[])
      and ($4::text[] is null or next.flags is null or not next.flags ?| $4::text[])
    order by next.run_at
    limit $3::integer
    for update skip locked
  )
)
returning
:include taken_columns
