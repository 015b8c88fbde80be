-- Functions for adding jobs that only the Python package calls. With this file, shared functions that an earlier version of
-- this package installed are replaced, too: see database/migrations/own_functions.py.

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

-- Adds one job that is unique by its arguments, which its key stands for, unless there is one.
--
-- Unlike unsafe_dedupe, a job that has failed permanently does not count: it loses its key, and the new job takes its
-- place. The unique index on keys holds for jobs of every runtime.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_add_unique_job(
    new_task text,
    new_payload json,
    new_queue text,
    new_run_at timestamptz,
    new_max_attempts integer,
    new_key text,
    new_priority integer,
    new_flags text[],
    new_while text, -- waiting: a running job does not count, and has no further attempt; waiting or running
    is_announced boolean, -- notify workers; false if the caller does
    out job :GRAPHILE_WORKER_SCHEMA._private_jobs,
    out is_new boolean
)
language plpgsql
as $body$
declare
    v_task_id integer;
    v_queue_id integer;
    v_seqscan text := pg_catalog.current_setting('enable_seqscan');
    v_setting text;
begin
    is_new := false;
    -- Only plans with an index, whatever the size of the tables when they are made; see add_job.
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    loop
        -- The lock waits for a worker that is about to take the job, and keeps others from taking it before the caller
        -- has committed: what the caller has changed is seen by the job.
        select jobs.* into job
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.key = new_key and jobs.is_available
        for update;
        exit when found;

        -- A running job is not locked: its worker must not wait for the caller. One that was cancelled does not count.
        if new_while = 'waiting or running' then
            select jobs.* into job
            from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
            where jobs.key = new_key and jobs.locked_at is not null
            and not exists (
                select from :GRAPHILE_WORKER_SCHEMA._private_py_cancels as cancels where cancels.job_id = jobs.id
            );
            exit when found;
        end if;

        -- Any other job loses its key and its remaining attempts, as in add_job.
        update :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        set key = null, attempts = jobs.max_attempts, updated_at = clock_timestamp()
        where jobs.key = new_key and not jobs.is_available
        and (
            new_while = 'waiting' or jobs.locked_at is null
            or exists (
                select from :GRAPHILE_WORKER_SCHEMA._private_py_cancels as cancels where cancels.job_id = jobs.id
            )
        );

        loop
            select tasks.id into v_task_id
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.identifier = new_task;
            exit when found;
            insert into :GRAPHILE_WORKER_SCHEMA._private_tasks (identifier)
            values (new_task)
            on conflict on constraint tasks_identifier_key do nothing;
        end loop;
        while new_queue is not null loop
            select job_queues.id into v_queue_id
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            where job_queues.queue_name = new_queue;
            exit when found;
            insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name)
            values (new_queue)
            on conflict on constraint job_queues_queue_name_key do nothing;
        end loop;

        insert into :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
            (job_queue_id, task_id, payload, run_at, max_attempts, key, priority, flags)
        values (
            v_queue_id,
            v_task_id,
            coalesce(new_payload, '{}'::json),
            coalesce(new_run_at, now()),
            coalesce(new_max_attempts::smallint, 25::smallint),
            new_key,
            coalesce(new_priority::smallint, 0::smallint),
            case
                when new_flags is not null
                    then (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(new_flags) as flag)
            end
        )
        on conflict on constraint jobs_key_key1 do nothing
        returning jobs.* into job;
        is_new := found;
        exit when found;
    end loop;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    if is_new and is_announced then
        perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}');
    end if;
end;
$body$;
