-- Whether any job waits, ready or scheduled, and how many of these tasks have a row.
--
-- $1 text[]  task identifiers, each once
-- Returns one row: is_anything_waiting (boolean), known_tasks (bigint).
select
    exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs where is_available) as is_anything_waiting,
    (
        select count(*) from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = any ($1::text[])
    ) as known_tasks
