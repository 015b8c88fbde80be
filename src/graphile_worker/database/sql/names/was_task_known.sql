-- Whether a task identifier was in the database before a job was added for it. The transaction that added the job has
-- written both rows if it was not. A job that is not committed yet, or gone, cannot be seen; a task that can was there.
--
-- $1 text    task identifier
-- $2 bigint  job id
-- Returns a boolean.
select exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_tasks tasks
  where tasks.identifier = $1::text
    and tasks.xmin is distinct from (
      select jobs.xmin from :GRAPHILE_WORKER_SCHEMA._private_jobs jobs where jobs.id = $2::bigint
    )
)
