-- Let jobs that were added "now" by the server's clock be due now by a test's clock, in the same order.
--
-- $1 timestamptz  the time of the test's clock
-- Returns how many there were.
--
-- A job without a time of its own is due when it was added, to the microsecond; so jobs that were given a time,
-- and those that were tried already, stay as they are.
with
added as (
  select id, run_at - max(run_at) over () as place
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where locked_at is null and attempts = 0 and run_at in (created_at, updated_at)
),
adopted as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set run_at = $1::timestamptz + added.place
  from added
  where job.id = added.id
  returning 1
)
select count(*) from adopted
