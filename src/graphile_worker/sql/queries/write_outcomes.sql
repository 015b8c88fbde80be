-- Write how jobs ended, free their named queues, and go on at once with the next job of each of these queues.
--
-- $1 text         pool id
-- $2 bigint[]     ids of completed jobs: deleted
-- $3 bigint[]     ids of failed jobs: kept, to be tried again after the back-off
-- $4 text[]       their error messages
-- $5 text[]       their new payloads (JSON text), null to keep the old one
-- $6 integer[]    ids of the tasks this pool can run; null: do not go on with the queues
-- $7 text[]       forbidden flags, or null
-- $8 timestamptz  the time to go by when looking for the next job, or null for the server's
-- Returns the columns of a job for each queue that goes on, or one row of nulls if none does. Every row also has
-- missing (the ids of jobs that were not written: deleted, or held by others by now; null if there are none) and
-- final (the ids of failed jobs that are not tried again; null if there are none).
--
-- A queue that goes on stays locked throughout, so no other worker can come between. Failures count only
-- while the pool still holds the job; completions nearly always do (see complete_jobs). Back-off is by the server's
-- clock. `attempts` was raised when the job was fetched.
with
completed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
),
failed as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
    last_error = failure.message,
    payload = coalesce(failure.payload::json, job.payload),
    run_at = greatest(now(), job.run_at) + exp(least(job.attempts, 10)) * interval '1 second',
    locked_by = null,
    locked_at = null
  from unnest($3::bigint[], $4::text[], $5::text[]) as failure (id, message, payload)
  where job.id = failure.id and job.locked_by = $1::text
  returning job.id, job.job_queue_id, job.is_available
),
-- Only queues of jobs that were written now: when a write is repeated because its answer was lost, the queue
-- may run another job of this pool by then.
held_queue as materialized (
  select id from :GRAPHILE_WORKER_SCHEMA._private_job_queues
  where locked_by = $1
    and id = any (array(
      select job_queue_id from completed where job_queue_id is not null
      union all
      select job_queue_id from failed where job_queue_id is not null
    ))
),
-- An array of one queue and not an equality: then only the index that begins with the queue gives this order, and
-- the planner cannot choose to read the jobs of all queues when it believes that there are few.
next as materialized (
  select head.place
  from held_queue cross join lateral (
    select job.ctid as place
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[held_queue.id])
      and job.run_at <= coalesce($8::timestamptz, now())
      and job.task_id = any ($6::integer[])
      and ($7::text[] is null or job.flags is null or not job.flags ?| $7)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
    for update skip locked
  ) head
),
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($8::timestamptz, now())
  where job.ctid = any (array(select place from next))
  returning job.*
),
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1
    and queue.id = any (array(select id from held_queue except select job_queue_id from taken))
),
-- A queue that goes on for hours must not look abandoned; a minute more or less does not matter.
renewed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_at = coalesce($8::timestamptz, now())
  where queue.locked_at < coalesce($8::timestamptz, now()) - interval '1 minute'
    and queue.id = any (array(select job_queue_id from taken))
),
-- Nearly always nothing is missing, and the counts alone say so.
missing as (
  select array(
    select unnest($2 || $3) except all (select id from completed union all select id from failed)
  ) as ids
  where (select count(*) from completed) + (select count(*) from failed) < cardinality($2) + cardinality($3)
)
select
:include taken_columns
  , (select ids from missing) as missing
  , (select array_agg(id) from failed where not is_available) as final
from (select) always left join taken on true
order by priority, run_at
