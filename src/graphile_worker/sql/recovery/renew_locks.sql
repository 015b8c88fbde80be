-- Renew the locks on jobs that run for long, and on their queues, so that nobody takes them for forgotten: every
-- runtime clears locks that are older than four hours.
--
-- $1 text         pool id
-- $2 bigint[]     ids of the jobs that it runs
-- $3 timestamptz  the time to go by, or null for the server's
-- Returns how many jobs had a lock of more than an hour.
with
renewed as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs
  set
    locked_at = coalesce($3::timestamptz, now()),
    -- That a job was changed after it was locked says that its key was used again (see recover_jobs).
    updated_at = case
      when updated_at > locked_at then coalesce($3::timestamptz, now()) + interval '1 microsecond'
      else updated_at
    end
  where id = any ($2::bigint[]) and locked_by = $1
    and locked_at < coalesce($3::timestamptz, now()) - interval '1 hour'
  returning job_queue_id
),
renewed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues
  set locked_at = coalesce($3::timestamptz, now())
  where locked_by = $1 and id = any (array(select job_queue_id from renewed where job_queue_id is not null))
)
select count(*) from renewed
