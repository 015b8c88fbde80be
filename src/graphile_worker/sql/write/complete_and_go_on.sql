-- Delete finished jobs, free their named queues, and go on at once with the next job of each of these queues: what
-- write_outcomes does if none failed, in less time.
--
-- $1 text         pool id
-- $2 bigint[]     ids of completed jobs
-- $3 integer[]    ids of the tasks this pool can run
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the time to go by when looking for the next job, or null for the server's
-- Returns the columns of a job for each queue that goes on, or one row of nulls if none does. Every row also has the
-- ids of the jobs that were deleted, or null if all of them were.
with
completed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
),
ended as (select job_queue_id from completed),
:include go_on
select
:include taken_columns
  , (
    select case when count(*) < pg_catalog.cardinality($2) then coalesce(pg_catalog.array_agg(id), '{}') end
    from completed
  ) as completed
from (select) always left join taken on true
order by priority, run_at
