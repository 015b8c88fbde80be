-- What a bulk change must know before its first step.
-- $1 the name of the index over failed jobs with its schema, quoted.
-- Returns last_id (the highest id of all jobs, null without any) and has_failed_index.
select
    (select max(job.id) from :GRAPHILE_WORKER_SCHEMA._private_jobs as job) as last_id,
    pg_catalog.to_regclass($1::text) is not null as has_failed_index
