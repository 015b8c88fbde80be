-- Lock the jobs with a key that come before the last job of a held batch, which has locked none of them: see `keyed`.
--
-- $1 text              pool id, written to locked_by
-- $2 text              ids of the tasks that this pool can run
-- $3 integer           limit
-- $4 text[]            forbidden flags, or null
-- $5 timestamptz       the worker's time, or null for the server's
-- $6 smallint          the priority of the last job of the batch
-- $7 double precision  its run_at (seconds since 1970)
-- Returns the columns of a job, unordered.
with recursive
:include terms
:include keyed_steps
keyed as materialized (
  select found.place
  from (select task_id, priority from keyed_step limit 50) step
  cross join lateral (
    select job.ctid as place
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.key is not null
      and job.task_id = any (array[step.task_id]) -- see write_outcomes
      and job.priority = step.priority
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        case
          when step.priority < $6::smallint then 'infinity'::timestamptz
          else to_timestamp($7::double precision)
        end
      )
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.task_id, job.priority, job.run_at
    limit $3::integer
    for update skip locked
  ) found
  where step.task_id = any ((select ids from task)::integer[]) and step.priority <= $6
  limit $3
)
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from keyed))
returning
:include taken_columns
