-- add_job(...): add one job, or replace, keep or merge the waiting one that has the same key.
--
-- Returns the job's row, never an empty one. Three cases, the most frequent first:
--   no key            one insert (task and queue are created first only if it finds them missing)
--   a key             update the job that has it; insert where none is left to update
--   unsafe_dedupe     count a repetition on the job that has the key, whatever its state; else insert

create or replace function :GRAPHILE_WORKER_SCHEMA.add_job(
    identifier text,
    payload json default null,
    queue_name text default null,
    run_at timestamptz default null,
    max_attempts integer default null,
    job_key text default null,
    priority integer default null,
    flags text[] default null,
    job_key_mode text default 'replace'
)
returns :GRAPHILE_WORKER_SCHEMA._private_jobs
language plpgsql
as $body$
declare
    v_job :GRAPHILE_WORKER_SCHEMA._private_jobs;
    v_flags jsonb;
    v_task_id integer;
    v_queue_id integer;
    v_seqscan text;
    v_setting text;
begin
    if job_key is not null and job_key_mode not in ('replace', 'preserve_run_at', 'unsafe_dedupe') then
        raise exception using
            errcode = 'GWBKM',
            message = pg_catalog.format('job_key_mode is %L', job_key_mode),
            hint = 'Use replace, preserve_run_at or unsafe_dedupe.';
    end if;

    if flags is not null then
        v_flags := (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(flags) as flag);
    end if;

    if job_key is null and queue_name is null then
        insert into :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
            (task_id, payload, run_at, max_attempts, priority, flags)
        select
            tasks.id,
            coalesce(add_job.payload, '{}'::json),
            coalesce(add_job.run_at, now()),
            coalesce(add_job.max_attempts::smallint, 25::smallint),
            coalesce(add_job.priority::smallint, 0::smallint),
            v_flags
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.identifier = add_job.identifier
        returning jobs.* into v_job;

        if found then
            perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}');
            return v_job;
        end if;
    end if;

    -- A session keeps its plans. One made while a table was empty would go on to read the whole of it, row by
    -- row, after a burst of new jobs, until the next analyze; so only plans with an index are made here.
    v_seqscan := pg_catalog.current_setting('enable_seqscan');
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- Names that exist cost a look, not an identity value. A name may appear (somebody else adds it) or vanish
    -- (clean-up) between two statements, hence the loops.
    loop
        select tasks.id into v_task_id
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.identifier = add_job.identifier;
        exit when found;

        insert into :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks (identifier)
        values (add_job.identifier)
        on conflict on constraint tasks_identifier_key do nothing
        returning tasks.id into v_task_id;
        exit when found;
    end loop;

    if queue_name is not null then
        loop
            select job_queues.id into v_queue_id
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            where job_queues.queue_name = add_job.queue_name;
            exit when found;

            insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues (queue_name)
            values (add_job.queue_name)
            on conflict on constraint job_queues_queue_name_key do nothing
            returning job_queues.id into v_queue_id;
            exit when found;
        end loop;
    end if;

    -- Each round ends with a row of ours or finds that somebody else changed who has the key; then it starts
    -- over with a fresh view. All statements wait for whoever holds the row, and judge what they then find.
    loop
        if job_key is not null and job_key_mode = 'unsafe_dedupe' then
            update :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
            set revision = jobs.revision + 1, updated_at = now()
            where jobs.key = add_job.job_key
            returning jobs.* into v_job;
            exit when found;
        elsif job_key is not null then
            -- A waiting job takes the new values; any other (running, or out of attempts) gives up its key and is
            -- not tried again. Except for a batch that runs: arrays are joined and not replaced, so nothing stands
            -- in for its items. It keeps its attempts and retries what is left of it under no key.
            update :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
            set
                key = case when jobs.is_available then jobs.key end,
                job_queue_id = case when jobs.is_available then v_queue_id else jobs.job_queue_id end,
                task_id = case when jobs.is_available then v_task_id else jobs.task_id end,
                payload = case
                    when not jobs.is_available then jobs.payload
                    when json_typeof(jobs.payload) = 'array' and json_typeof(add_job.payload) = 'array'
                        -- Depends on the row, or the planner would convert it although there is nothing to merge.
                        then (
                            jobs.payload::jsonb || (case when jobs.is_available then add_job.payload end)::jsonb
                        )::json
                    else coalesce(add_job.payload, '{}'::json)
                end,
                run_at = case
                    when not jobs.is_available then jobs.run_at
                    when job_key_mode = 'preserve_run_at' and jobs.attempts = 0 then jobs.run_at
                    else coalesce(add_job.run_at, now())
                end,
                priority = case
                    when jobs.is_available then coalesce(add_job.priority::smallint, 0::smallint)
                    else jobs.priority
                end,
                max_attempts = case
                    when jobs.is_available then coalesce(add_job.max_attempts::smallint, 25::smallint)
                    else jobs.max_attempts
                end,
                flags = case when jobs.is_available then v_flags else jobs.flags end,
                attempts = case
                    when jobs.is_available then 0
                    when jobs.locked_at is not null and json_typeof(jobs.payload) = 'array'
                        and json_typeof(add_job.payload) = 'array' then jobs.attempts
                    else jobs.max_attempts
                end,
                last_error = case when jobs.is_available then null else jobs.last_error end,
                revision = case when jobs.is_available then jobs.revision + 1 else jobs.revision end,
                -- That a running job gave up its key is seen by a time after its lock, however old this transaction is.
                updated_at = case
                    when jobs.is_available then now()
                    when jobs.locked_at is not null and json_typeof(jobs.payload) = 'array'
                        and json_typeof(add_job.payload) = 'array' then jobs.updated_at
                    else clock_timestamp()
                end
            where jobs.key = add_job.job_key
            returning jobs.* into v_job;
            exit when found and v_job.key is not null;
        end if;

        insert into :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
            (job_queue_id, task_id, payload, run_at, max_attempts, key, priority, flags)
        values (
            v_queue_id,
            v_task_id,
            coalesce(add_job.payload, '{}'::json),
            coalesce(add_job.run_at, now()),
            coalesce(add_job.max_attempts::smallint, 25::smallint),
            add_job.job_key,
            coalesce(add_job.priority::smallint, 0::smallint),
            v_flags
        )
        on conflict on constraint jobs_key_key1 do nothing
        returning jobs.* into v_job;
        exit when found;
    end loop;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    if job_key is null or job_key_mode is distinct from 'unsafe_dedupe' or v_job.revision = 0 then
        perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}');
    end if;
    return v_job;
end;
$body$;
