-- Choose the next jobs like get_plain_jobs and lock their rows until the end of the transaction, without writing to them;
-- choose none if a job of a named queue may be next, and none with a key: see `keyed`.
--
-- Due by the time of the statement: now() is that of the transaction, and a job may have been added since that began.
--
-- $1 integer      limit
-- $2 text         ids of the tasks that this pool can run
-- $3 text[]       forbidden flags, or null
-- $4 timestamptz  the worker's time, or null for the server's
-- Returns the columns of a job as if it were locked, in run order.
with recursive
:include held_terms
:include plain_priority
,
:include keyed
:include free_queues
select
:include held_columns
from plain_priority cross join lateral (
  select job.*
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.is_available and job.job_queue_id is null
    and job.key is null and job.priority = plain_priority.priority
    and job.run_at <= least(
      coalesce($4::timestamptz, statement_timestamp()),
      (
        select case
          when plain_priority.priority < last_keyed.priority then 'infinity'
          when plain_priority.priority = last_keyed.priority then last_keyed.run_at - interval '1 microsecond'
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
) found
where not (select may_be_next from queues)
limit $1
