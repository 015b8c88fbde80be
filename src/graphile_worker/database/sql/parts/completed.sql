-- Part of the statements that delete completed jobs by a list of ids: $1 is the pool id, $2 the job ids.
-- The lock is checked only for jobs with a key. Completed means that the work is done, whichever pool has the job now.
-- But if this pool lost a job with a key, its payload may have been replaced, and that work is not done.
completed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
)
