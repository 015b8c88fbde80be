-- add_jobs(specs, job_key_preserve_run_at): add many jobs at once, with one notification.
--
-- Returns one row per spec, in the order of the specs. Jobs without a key go in with one insert. A spec with a
-- key updates the waiting job that has it, or detaches a running or failed one from it and adds a new job.

create or replace function :GRAPHILE_WORKER_SCHEMA.add_jobs(
    specs :GRAPHILE_WORKER_SCHEMA.job_spec[],
    job_key_preserve_run_at boolean default false
)
returns setof :GRAPHILE_WORKER_SCHEMA._private_jobs
language plpgsql
as $body$
declare
    v_count bigint := pg_catalog.cardinality(specs);
    v_key_count bigint;
    v_queued_count bigint;
    v_new_tasks boolean;
    v_todo :GRAPHILE_WORKER_SCHEMA.job_spec[] := specs;
    v_cut_off bigint;
    v_new_ids bigint[];
    v_unkeyed_ids bigint[];
    v_seqscan text;
    v_setting text;
begin
    perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || nullif(v_count, 0)::text || '}');
    if v_count is null or v_count = 0 then
        return;
    end if;

    select pg_catalog.count(spec.job_key), pg_catalog.count(spec.queue_name), bool_or(tasks.id is null)
    into v_key_count, v_queued_count, v_new_tasks
    from pg_catalog.unnest(specs) as spec
    left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.identifier = spec.identifier;

    -- Only names that are missing, so that known ones cost no identity values; and in order, so that two callers
    -- who create the same names wait for each other and do not deadlock.
    if v_new_tasks then
        insert into :GRAPHILE_WORKER_SCHEMA._private_tasks (identifier)
        select distinct spec.identifier
        from pg_catalog.unnest(specs) as spec
        where not exists (
            select from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.identifier = spec.identifier
        )
        order by spec.identifier
        on conflict on constraint tasks_identifier_key do nothing;
    end if;

    if v_queued_count > 0 then
        insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name)
        select distinct spec.queue_name
        from pg_catalog.unnest(specs) as spec
        where spec.queue_name is not null
        and not exists (
            select from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            where job_queues.queue_name = spec.queue_name
        )
        order by spec.queue_name
        on conflict on constraint job_queues_queue_name_key do nothing;
    end if;

    if v_key_count = 0 then
        return query
        insert into :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
            (job_queue_id, task_id, payload, run_at, max_attempts, priority, flags)
        select
            job_queues.id,
            tasks.id,
            coalesce(spec.payload, '{}'::json),
            coalesce(spec.run_at, now()),
            coalesce(spec.max_attempts, 25::smallint),
            coalesce(spec.priority, 0::smallint),
            case
                when spec.flags is not null
                    then (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(spec.flags) as flag)
            end
        from pg_catalog.unnest(specs) with ordinality as spec
            (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, place)
        left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.identifier = spec.identifier
        left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            on job_queues.queue_name = spec.queue_name
        order by spec.place
        returning jobs.*;
        return;
    end if;

    if v_key_count > (select pg_catalog.count(distinct spec.job_key) from pg_catalog.unnest(specs) as spec) then
        raise exception using
            errcode = 'cardinality_violation',
            message = 'add_jobs: the same job_key is given twice in one call',
            hint = 'Keep only the last spec of each job_key.';
    end if;

    -- A session keeps its plans. One made while the table was empty would go on to read the whole of it after a
    -- burst of new jobs, until the next analyze; so only plans with an index are made from here on.
    v_seqscan := pg_catalog.current_setting('enable_seqscan');
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- In the order of the keys each spec finds its key free, or waits for whoever holds the job that has it and
    -- then judges its final state: a waiting job takes the new values; any other (running, or out of attempts)
    -- gives up its key, which is ours then, and the next round adds a job for it. No condition lets a spec fall
    -- through. Whoever adds several keys takes them in this order, so two such callers wait but do not deadlock.
    loop
        with added as (
            insert into :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
                (job_queue_id, task_id, payload, run_at, max_attempts, key, priority, flags)
            select
                job_queues.id,
                tasks.id,
                coalesce(spec.payload, '{}'::json),
                coalesce(spec.run_at, now()),
                coalesce(spec.max_attempts, 25::smallint),
                spec.job_key,
                coalesce(spec.priority, 0::smallint),
                case
                    when spec.flags is not null
                        then (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(spec.flags) as flag)
                end
            from pg_catalog.unnest(v_todo) with ordinality as spec
                (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, place)
            left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.identifier = spec.identifier
            left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
                on job_queues.queue_name = spec.queue_name
            order by spec.job_key, spec.place
            on conflict on constraint jobs_key_key1 do update set
                key = case when jobs.is_available then jobs.key end,
                job_queue_id = case when jobs.is_available then excluded.job_queue_id else jobs.job_queue_id end,
                task_id = case when jobs.is_available then excluded.task_id else jobs.task_id end,
                payload = case
                    when not jobs.is_available then jobs.payload
                    when json_typeof(jobs.payload) = 'array' and json_typeof(excluded.payload) = 'array'
                        then (jobs.payload::jsonb || excluded.payload::jsonb)::json
                    else excluded.payload
                end,
                run_at = case
                    when not jobs.is_available then jobs.run_at
                    when job_key_preserve_run_at and jobs.attempts = 0 then jobs.run_at
                    else excluded.run_at
                end,
                priority = case when jobs.is_available then excluded.priority else jobs.priority end,
                max_attempts = case when jobs.is_available then excluded.max_attempts else jobs.max_attempts end,
                flags = case when jobs.is_available then excluded.flags else jobs.flags end,
                attempts = case
                    when jobs.is_available then 0
                    -- A batch that runs is joined and not replaced: it may retry what is left of it (see add_job).
                    when jobs.locked_at is not null and json_typeof(jobs.payload) = 'array'
                        and json_typeof(excluded.payload) = 'array' then jobs.attempts
                    else jobs.max_attempts
                end,
                last_error = case when not jobs.is_available then jobs.last_error end,
                revision = case when jobs.is_available then jobs.revision + 1 else jobs.revision end,
                -- That a running job gave up its key is seen by a time after its lock, however old this transaction is.
                updated_at = case
                    when jobs.is_available then now()
                    when jobs.locked_at is not null and json_typeof(jobs.payload) = 'array'
                        and json_typeof(excluded.payload) = 'array' then jobs.updated_at
                    else clock_timestamp()
                end
            returning jobs.id, jobs.key, jobs.is_available
        )
        -- Specs without a key came last, in their own order, so the order of their ids tells which is which.
        select
            count(*) filter (where not added.is_available),
            pg_catalog.array_agg(added.id order by added.id) filter (where added.key is null and added.is_available)
        into v_cut_off, v_new_ids
        from added;

        v_unkeyed_ids := coalesce(v_unkeyed_ids, v_new_ids);
        exit when v_cut_off = 0;

        v_todo := array(
            select spec
            from pg_catalog.unnest(v_todo) as spec
            where spec.job_key is not null
            and (
                select jobs.id from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs where jobs.key = spec.job_key
            ) is null
        );
    end loop;

    return query
    select jobs.*
    from (
        select
            spec.job_key,
            v_unkeyed_ids[row_number() over (partition by spec.job_key is null order by spec.place)] as unkeyed_id,
            spec.place
        from pg_catalog.unnest(specs) with ordinality as spec
            (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, place)
    ) as spec
    cross join lateral (
        select jobs.*
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.key = spec.job_key
        union all
        select jobs.*
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where spec.job_key is null and jobs.id = spec.unkeyed_id
    ) as jobs
    order by spec.place;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
end;
$body$;
