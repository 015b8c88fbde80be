-- Write how jobs ended, free their named queues, and go on at once with the next job of each of these queues.
--
-- $1 text         pool id
-- $2 bigint[]     ids of completed jobs: deleted
-- $3 integer[]    ids of the tasks this pool can run; null: do not go on with the queues
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the time to go by when looking for the next job, or null for the server's
-- $6 bigint[]     ids of failed jobs: kept, to be tried again after the back-off
-- $7 text[]       their error messages
-- $8 text[]       their new payloads (JSON text), null to keep the old one
-- Returns the columns of a job for each queue that goes on, or one row of nulls if none does. Every row also has the
-- ids of completed jobs that were deleted (null if all of them were), and of failed jobs that were written, negative if
-- they are not tried again (null if there are none). What is not among them is gone, or held by others by now.
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
    run_at = greatest(now(), job.run_at) + exp(least(job.attempts, 10)::double precision) * interval '1 second',
    locked_by = null,
    locked_at = null
  from unnest($6::bigint[], $7::text[], $8::text[]) as failure (id, message, payload)
  where job.id = failure.id and job.locked_by = $1::text
  returning job.id, job.job_queue_id, job.is_available
),
ended as (
  select job_queue_id from completed
  union all
  select job_queue_id from failed
),
:include go_on
select
:include taken_columns
  , (
    select case when count(*) < pg_catalog.cardinality($2) then coalesce(pg_catalog.array_agg(id), '{}') end
    from completed
  ) as completed
  , (select pg_catalog.array_agg(case when is_available then id else - id end) from failed) as failed
from (select) always left join taken on true
order by priority, run_at
