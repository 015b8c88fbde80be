-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
:include terms
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from unnest($6::smallint[], $7::smallint[], $8::double precision[]) as range (low, high, since)
  cross join lateral (
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.run_at
      limit $3::integer
      for update skip locked
    ) known
    union all
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
