-- Adds one job that has neither key nor queue, with the effect of add_job, for callers outside a transaction.
--
-- PostgreSQL commits transactions that notify one at a time, including their wait for the disk, so concurrent adders
-- would queue up. Here an adder that is not alone commits the job first, in a group commit with the others, and notifies
-- in a second transaction, which has nothing to flush. If the session ends in between, workers find the job by polling.

create or replace procedure :GRAPHILE_WORKER_SCHEMA._private_py_add_plain_job(
    job_task text,
    job_payload json,
    job_run_at timestamptz,
    job_max_attempts integer,
    job_priority integer,
    job_flags text[],
    inout job_id bigint, -- null if the task has no row yet; then nothing was added
    inout added_flags text,
    inout added_run_at double precision,
    inout added_at double precision,
    inout added_task_id integer
)
language plpgsql
as $body$
begin
    insert into :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        (task_id, payload, run_at, max_attempts, priority, flags)
    select
        tasks.id,
        job_payload,
        coalesce(job_run_at, now()),
        coalesce(job_max_attempts::smallint, 25::smallint),
        coalesce(job_priority::smallint, 0::smallint),
        case
            when job_flags is not null
                then (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(job_flags) as flag)
        end
    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    where tasks.identifier = job_task
    returning
        jobs.id, jobs.flags::text, date_part('epoch', jobs.run_at), date_part('epoch', jobs.created_at),
        jobs.task_id
    into job_id, added_flags, added_run_at, added_at, added_task_id;

    if found then
        if not pg_try_advisory_xact_lock(7231964501297834) then
            commit;
        end if;
        perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}');
    end if;
end;
$body$;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (4, 'add_plain_job')
on conflict (id) do nothing;
