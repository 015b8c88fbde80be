-- Ready jobs by priority, by the indexes of the fetch; parts/queued.sql has those of named queues.

-- part: terms
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),

-- part: plain_priority
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
plain_priority (priority) as (
  (
    select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)

-- part: first_of_priority
-- The first waiting job of each priority, of a named queue or not, in ascending order, at most 100 of them: one probe each of
-- the index of the fetch, so what it reads does not depend on the number of jobs. `beginning` has the lowest priority.
first_of_priority (id, priority, run_at, step) as (
  (
    select job.id, job.priority, job.run_at, 1
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.is_available = true and job.priority >= (select priority from beginning)
    order by job.priority, job.run_at
    limit 1
  )
  union all
  select following.id, following.priority, following.run_at, last.step + 1
  from first_of_priority as last
  cross join lateral (
    select job.id, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.is_available = true and job.priority > last.priority
    order by job.priority, job.run_at
    limit 1
  ) as following
  where last.step < 100
)

-- part: plain
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
:include flag_rules
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),

-- part: plain_above_watermarks
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
:include flag_rules
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
:include flag_rules
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
