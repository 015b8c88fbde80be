-- Delete completed jobs and lock the next job of each of their named queues. Fast path of write_outcomes for batches
-- without failures.
--
-- $1 text         pool id
-- $2 bigint[]     ids of completed jobs
-- $3 text         ids of the tasks this pool can run, as an array literal such as {1,2}
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the current time for the choice of the next job, or null for the server's
-- Returns the columns of each job that was locked, or one row of nulls. Every row ends with the ids of the jobs that were
-- deleted, or null if all of them were.
with
:include completed
,
ended as (select job_queue_id from completed),
:include take_next
select
:include taken_columns
  , (
    select case when count(*) < pg_catalog.cardinality($2::bigint[]) then coalesce(pg_catalog.array_agg(id), '{}') end
    from completed
  ) as completed
from (select) always left join taken on true
order by priority, run_at
