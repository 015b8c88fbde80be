-- Change the payload of a job that nothing has changed since it was read, and that is not locked.
-- $1 bigint   id
-- $2 integer  the revision that was read
-- $3 text     the payload, JSON
-- Returns the new revision; nothing if the job is gone, locked or changed.
update :GRAPHILE_WORKER_SCHEMA._private_jobs as job
set payload = $3::text::json, revision = job.revision + 1, updated_at = now()
where job.id = $1::bigint and job.revision = $2::integer and job.locked_at is null
returning job.revision
