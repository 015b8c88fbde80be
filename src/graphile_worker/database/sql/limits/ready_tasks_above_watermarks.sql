-- Like ready_tasks, but jobs without a queue are read in these ranges of priorities only.
--
-- $1 text                ids of the tasks, as an array literal such as {1,2}
-- $2 integer             read at most this many jobs without a queue, and as many of named queues
-- $3 timestamptz         the worker's time, or null for the server's
-- $4 smallint[]          the lowest priority of each range, in ascending order ...
-- $5 smallint[]          ... the highest ...
-- $6 double precision[]  ... and the run_at to start from (seconds since 1970)
-- Returns the columns of ready_tasks.
with recursive
task (ids) as materialized (select $1::text::integer[]),
plain as materialized (
  select found.task_id, found.priority, found.run_at
  from unnest($4::smallint[], $5::smallint[], $6::double precision[]) as range (low, high, since)
  cross join lateral (
    select * from (
      select job.task_id, job.priority, job.run_at
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at <= coalesce($3::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
      order by job.run_at
      limit $2::integer
    ) known
    union all
    select * from (
      select job.task_id, job.priority, job.run_at
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
        and job.run_at <= coalesce($3::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
      order by job.priority, job.run_at
      limit $2::integer
    ) gap
  ) found
  limit $2
),
:include ready_in_queues
