-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
:include terms
:include plain_priority
,
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
