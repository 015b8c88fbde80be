-- Write any mix of completed and failed jobs, unlock their named queues or lock the next job of each.
--
-- $1 text         pool id
-- $2 bigint[]     ids of completed jobs; they are deleted
-- $3 text         ids of the tasks this pool can run, as an array literal such as {1,2}; null: take no next job
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the current time for the choice of the next job, or null for the server's
-- $6 bigint[]     ids of failed and snoozed jobs; they are kept
-- $7 text[]       their error messages
-- $8 text[]       their new payloads (JSON text), null to keep the old one
-- $9 bigint[]     their max_attempts, which replace the default of 25: options of a task that the add did not know
-- $10 text[]      give_up: the job fails permanently; snooze: it runs again and the attempt does not count; null: it is
--                 retried while attempts are left
-- $11 float8[]    seconds until they run again, null for the back-off
-- Returns the columns of each job that was locked, or one row of nulls. Every row ends with the ids of completed jobs
-- that were deleted (null if all of them were) and the ids of failed jobs that were written, negative if the job is not
-- retried (null if there are none). Jobs in neither list are gone, or locked by another pool.
--
-- A queue that continues stays locked throughout, so no other worker can get in between. A failure is written only while
-- the pool has the job. The back-off goes by the server's clock; `attempts` was raised by the fetch.
with
:include completed
,
failed as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
:include new_values
  from unnest($6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::text[], $11::double precision[])
    as failure (job_id, message, new_payload, own_max_attempts, decision, delay)
  -- An array of one id instead of an equality: with this, rows can only be looked up one by one. A session that plans the
  -- statement while the table is nearly empty would otherwise read all of it at every write from then on.
  where job.id = any (array[failure.job_id]) and job.locked_by = $1::text
  returning job.id, job.job_queue_id, job.is_available
),
ended as (
  select job_queue_id from completed
  union all
  select job_queue_id from failed
),
:include take_next
select
:include taken_columns
  , (
    select case when count(*) < pg_catalog.cardinality($2::bigint[]) then coalesce(pg_catalog.array_agg(id), '{}') end
    from completed
  ) as completed
  , (select pg_catalog.array_agg(case when is_available then id else - id end) from failed) as failed
from (select) always left join taken on true
order by priority, run_at
