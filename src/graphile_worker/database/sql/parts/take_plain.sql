-- Part of get_plain_jobs and get_plain_jobs_above_watermarks: takes the jobs of `plain`, which is not even read if a job
-- of a named queue may be next.
term (flags, moment) as materialized (select $4::text[], coalesce($5::timestamptz, now())),
:include free_queues
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from plain where not (select may_be_next from queues)))
returning
:include taken_columns
