-- remove_job(job_key): delete the job that has the key, or detach a running one from its key and its retries.
--
-- Returns the row as it was deleted or as it is now; all columns null when no job has the key.
-- The row is locked before it is checked, so that the job cannot start or end in between.

create or replace function :GRAPHILE_WORKER_SCHEMA.remove_job(job_key text)
returns :GRAPHILE_WORKER_SCHEMA._private_jobs
language plpgsql
strict
as $body$
declare
    v_job :GRAPHILE_WORKER_SCHEMA._private_jobs;
    v_seqscan text := pg_catalog.current_setting('enable_seqscan');
    v_setting text;
begin
    -- Only plans with an index: one made while the table was empty would be kept and, after a burst of new jobs,
    -- read the whole table.
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);
    select * into v_job
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.key = remove_job.job_key
    for update;

    if v_job.locked_at is null or v_job.locked_at < now() - interval '4 hours' then
        delete from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs where jobs.id = v_job.id;
        if found then
            perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":-1}');
        end if;
    else
        -- That it gave up its key is seen by a time after its lock, however old this transaction is.
        update :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        set key = null, attempts = jobs.max_attempts, updated_at = clock_timestamp()
        where jobs.id = v_job.id
        returning jobs.* into v_job;
    end if;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    return v_job;
end;
$body$;
