-- Choose the next jobs like get_held_jobs, but from given watermarks on; see get_jobs_above_watermarks.
--
-- $1 integer             limit
-- $2 text                ids of the tasks that this pool can run
-- $3 text[]              forbidden flags, or null
-- $4 timestamptz         the worker's time, or null for the server's
-- $5 smallint[]          ranges of priorities in ascending order: the lowest of each ...
-- $6 smallint[]          ... and the highest
-- $7 double precision[]  the run_at to start from in each range (seconds since 1970)
-- Returns the columns of a job as if it were locked, in run order.
with recursive
:include held_terms
:include keyed
:include free_queues
select
:include held_columns
from unnest($5::smallint[], $6::smallint[], $7::double precision[]) as range (low, high, since)
cross join lateral (
  select * from (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where range.low = range.high and job.is_available and job.job_queue_id is null
      and job.key is null and job.priority = range.low and job.run_at >= to_timestamp(range.since)
      and job.run_at <= least(
        coalesce($4::timestamptz, statement_timestamp()),
        (
          select case
            when range.low < last_keyed.priority then 'infinity'
            when range.low = last_keyed.priority then last_keyed.run_at - interval '1 microsecond'
            else '-infinity'
          end
          from last_keyed
        )
      )
      and job.task_id = any ((select ids from task)::integer[])
      and ($3::text[] is null or job.flags is null or not job.flags ?| $3::text[])
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $1::integer
    for no key update skip locked
  ) known
  union all
  select * from (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where range.low < range.high and job.is_available and job.job_queue_id is null
      and job.key is null
      and job.priority between range.low and least(range.high, (select priority from last_keyed))
      and job.run_at <= coalesce($4::timestamptz, statement_timestamp())
      and (
        job.priority < (select priority from last_keyed) is not false
        or job.run_at < (select run_at from last_keyed)
      )
      and job.task_id = any ((select ids from task)::integer[])
      and ($3::text[] is null or job.flags is null or not job.flags ?| $3::text[])
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.priority, job.run_at
    limit $1::integer
    for no key update skip locked
  ) gap
) found
where not (select may_be_next from queues)
limit $1
