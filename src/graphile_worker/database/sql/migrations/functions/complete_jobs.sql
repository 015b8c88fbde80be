-- complete_jobs(job_ids): delete those of the jobs that are not running (or whose lock is four hours old).
--
-- Returns the deleted rows; running jobs and unknown ids are left out.

create or replace function :GRAPHILE_WORKER_SCHEMA.complete_jobs(job_ids bigint[])
returns setof :GRAPHILE_WORKER_SCHEMA._private_jobs
language sql
as $body$
    delete from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.id = any (complete_jobs.job_ids)
    and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
    returning jobs.*;
$body$;
