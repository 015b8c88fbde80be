-- Choose the next jobs like get_held_jobs while all have the same priority and run_at, as jobs that were added together
-- do: go on by id after the last one, and so pass the rows that other batches have locked.
--
-- $1 integer           limit
-- $2 text              ids of the tasks that this pool can run
-- $3 text[]            forbidden flags, or null
-- $4 timestamptz       the worker's time, or null for the server's
-- $5 smallint          the priority of the last job
-- $6 double precision  its run_at (seconds since 1970)
-- $7 bigint            its id
-- Returns the columns of a job as if it were locked, in run order; none if another job may be next.
with recursive
:include terms
:include queues
,
-- Whether a job comes before them. The head of the index would tell too, but it has the deleted rows of the last batches.
urgent as materialized (
  (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority < $5::smallint
    order by job.priority, job.run_at
    limit 1
  )
  union all
  (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = $5 and job.run_at < to_timestamp($6::double precision)
    order by job.run_at
    limit 1
  )
)
select
:include held_columns
from :GRAPHILE_WORKER_SCHEMA._private_jobs found
where found.id > $7::bigint and found.id <= $7 + 4::bigint * $1::bigint
  and found.is_available and found.job_queue_id is null
  and found.priority = $5 and found.run_at = to_timestamp($6)
  and found.run_at <= coalesce($4::timestamptz, statement_timestamp())
  and found.task_id = any ((select ids from task)::integer[])
  and ($3::text[] is null or found.flags is null or not found.flags ?| $3)
  and (found.xmax = 0 or found.xmax <> all ((select transactions from other)::xid[]))
  and not exists (select from urgent) and not (select may_be_next from queues)
order by found.id
limit $1
for update of found skip locked
