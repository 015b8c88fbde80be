-- Renew the locks of long-running jobs and of their queues: every runtime clears locks older than four hours.
--
-- $1 text         pool id
-- $2 bigint[]     ids of the jobs that it has locked
-- $3 timestamptz  the current time, or null for the server's
-- Returns the number of renewed locks: those older than an hour.
with
renewed as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs
  set
    locked_at = coalesce($3::timestamptz, now()),
    -- updated_at > locked_at means that the job's key was reused (see recover_jobs): keep it so.
    updated_at = case
      when updated_at > locked_at then coalesce($3::timestamptz, now()) + interval '1 microsecond'
      else updated_at
    end
  where id = any ($2::bigint[]) and locked_by = $1::text
    and locked_at < coalesce($3::timestamptz, now()) - interval '1 hour'
  returning job_queue_id
),
renewed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues
  set locked_at = coalesce($3::timestamptz, now())
  where locked_by = $1::text and id = any (array(select job_queue_id from renewed where job_queue_id is not null))
)
select count(*) from renewed
