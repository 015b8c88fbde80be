-- What a fresh database gets as of ac7a50f6. Written by make.py; never changed by hand.

-- Graphile Worker, revision 20: the whole schema in one transaction.
--
-- For a database that does not have it yet. Run it once, as the role that is to own the objects; the workers
-- then find everything in place. Running it again changes nothing: the first row of the ledger is there
-- already, the statement fails with a duplicate key, and the transaction is rolled back as a whole. To
-- upgrade a schema that is older, use `graphile-worker migrate`.

begin;

-- A role that may not create schemas can use one that was prepared for it.
do $body$
begin
    create schema if not exists "graphile_worker";
exception
    when insufficient_privilege then
        null;
end;
$body$;

-- The shared tables, type, indexes, row security and ledger as they stand at revision 20.
--
-- Runs in one transaction, before `000017_jobs_view` and the files in `functions/`. The schema exists already;
-- the ledger may exist too, left empty by another installer, and then only receives its rows.
-- Names, column order and the odd "1" in some names are part of the contract with the other runtimes.

create table if not exists "graphile_worker".migrations (
    id integer not null,
    ts timestamptz not null default now(),
    breaking boolean not null default false,
    constraint migrations_pkey primary key (id)
);

-- First, because its primary key is the only lock that other runtimes' installers know.
insert into "graphile_worker".migrations (id, breaking)
select revision, revision in (1, 3, 11, 13, 14, 16, 19)
from generate_series(1, 20) as revision;

create table "graphile_worker"._private_tasks (
    id integer not null generated always as identity (sequence name "graphile_worker".tasks_id_seq),
    identifier text not null,
    constraint tasks_pkey primary key (id),
    constraint tasks_identifier_key unique (identifier),
    constraint tasks_identifier_check check (length(identifier) <= 128)
);

create table "graphile_worker"._private_job_queues (
    id integer not null generated always as identity (sequence name "graphile_worker".job_queues_id_seq),
    queue_name text not null,
    locked_at timestamptz,
    locked_by text,
    is_available boolean not null generated always as (locked_at is null) stored,
    constraint job_queues_pkey1 primary key (id),
    constraint job_queues_queue_name_key unique (queue_name),
    constraint job_queues_queue_name_check check (length(queue_name) <= 128)
);

-- Neither job_queue_id nor task_id is a foreign key, on purpose: clean-up must not wait for running jobs.
create table "graphile_worker"._private_jobs (
    id bigint not null generated always as identity (sequence name "graphile_worker".jobs_id_seq1),
    job_queue_id integer,
    task_id integer not null,
    payload json not null default '{}'::json,
    priority smallint not null default 0,
    run_at timestamptz not null default now(),
    attempts smallint not null default 0,
    max_attempts smallint not null default 25,
    last_error text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    key text,
    locked_at timestamptz,
    locked_by text,
    revision integer not null default 0,
    flags jsonb,
    is_available boolean not null generated always as (locked_at is null and attempts < max_attempts) stored,
    constraint jobs_pkey1 primary key (id),
    constraint jobs_key_key1 unique (key),
    constraint jobs_key_check check (length(key) > 0 and length(key) <= 512),
    constraint jobs_max_attempts_check check (max_attempts >= 1)
);

create index jobs_main_index on "graphile_worker"._private_jobs
    using btree (priority, run_at) include (id, task_id, job_queue_id)
    where is_available = true;

create index jobs_no_queue_index on "graphile_worker"._private_jobs
    using btree (priority, run_at) include (id, task_id)
    where is_available = true and job_queue_id is null;

create table "graphile_worker"._private_known_crontabs (
    identifier text not null,
    known_since timestamptz not null,
    last_execution timestamptz,
    constraint known_crontabs_pkey primary key (identifier)
);

-- No policies: only the owner (and superusers) reads and writes; others need a function that runs as the owner.
alter table "graphile_worker"._private_tasks enable row level security;
alter table "graphile_worker"._private_job_queues enable row level security;
alter table "graphile_worker"._private_jobs enable row level security;
alter table "graphile_worker"._private_known_crontabs enable row level security;

create type "graphile_worker".job_spec as (
    identifier text,
    payload json,
    queue_name text,
    run_at timestamptz,
    max_attempts smallint,
    job_key text,
    priority smallint,
    flags text[]
);

-- Revision 17: the public view of the jobs. It has the permissions of its owner and omits payloads.

create view "graphile_worker".jobs as
select
    jobs.id,
    job_queues.queue_name,
    tasks.identifier as task_identifier,
    jobs.priority,
    jobs.run_at,
    jobs.attempts,
    jobs.max_attempts,
    jobs.last_error,
    jobs.created_at,
    jobs.updated_at,
    jobs.key,
    jobs.locked_at,
    jobs.locked_by,
    jobs.revision,
    jobs.flags
from "graphile_worker"._private_jobs as jobs
join "graphile_worker"._private_tasks as tasks on tasks.id = jobs.task_id
left join "graphile_worker"._private_job_queues as job_queues on job_queues.id = jobs.job_queue_id;

-- add_job(...): add one job, or replace, keep or merge the waiting one that has the same key.
--
-- Returns the job's row, never an empty one. Three cases, the most frequent first:
--   no key            one insert (task and queue are created first only if it finds them missing)
--   a key             update the job that has it; insert where none is left to update
--   unsafe_dedupe     count a repetition on the job that has the key, whatever its state; else insert

create or replace function "graphile_worker".add_job(
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
returns "graphile_worker"._private_jobs
language plpgsql
as $body$
declare
    v_job "graphile_worker"._private_jobs;
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
        insert into "graphile_worker"._private_jobs as jobs
            (task_id, payload, run_at, max_attempts, priority, flags)
        select
            tasks.id,
            coalesce(add_job.payload, '{}'::json),
            coalesce(add_job.run_at, now()),
            coalesce(add_job.max_attempts::smallint, 25::smallint),
            coalesce(add_job.priority::smallint, 0::smallint),
            v_flags
        from "graphile_worker"._private_tasks as tasks
        where tasks.identifier = add_job.identifier
        returning jobs.* into v_job;

        if found then
            perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}');
            return v_job;
        end if;
    end if;

    -- A session keeps its plans. One made while a table was empty would go on to read the whole of it, row by
    -- row, after a burst of new jobs, until the next analyze; so only plans with an index are made here.
    v_seqscan := current_setting('enable_seqscan');
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- Names that exist cost a look, not an identity value. A name may appear (somebody else adds it) or vanish
    -- (clean-up) between two statements, hence the loops.
    loop
        select tasks.id into v_task_id
        from "graphile_worker"._private_tasks as tasks
        where tasks.identifier = add_job.identifier;
        exit when found;

        insert into "graphile_worker"._private_tasks as tasks (identifier)
        values (add_job.identifier)
        on conflict on constraint tasks_identifier_key do nothing
        returning tasks.id into v_task_id;
        exit when found;
    end loop;

    if queue_name is not null then
        loop
            select job_queues.id into v_queue_id
            from "graphile_worker"._private_job_queues as job_queues
            where job_queues.queue_name = add_job.queue_name;
            exit when found;

            insert into "graphile_worker"._private_job_queues as job_queues (queue_name)
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
            update "graphile_worker"._private_jobs as jobs
            set revision = jobs.revision + 1, updated_at = now()
            where jobs.key = add_job.job_key
            returning jobs.* into v_job;
            exit when found;
        elsif job_key is not null then
            -- A waiting job takes the new values; any other (running, or out of attempts) gives up its key and is
            -- not tried again. Except for a batch that runs: arrays are joined and not replaced, so nothing stands
            -- in for its items. It keeps its attempts and retries what is left of it under no key.
            update "graphile_worker"._private_jobs as jobs
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

        insert into "graphile_worker"._private_jobs as jobs
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

-- add_jobs(specs, job_key_preserve_run_at): add many jobs at once, with one notification.
--
-- Returns one row per spec, in the order of the specs. Jobs without a key go in with one insert. A spec with a
-- key updates the waiting job that has it, or detaches a running or failed one from it and adds a new job.

create or replace function "graphile_worker".add_jobs(
    specs "graphile_worker".job_spec[],
    job_key_preserve_run_at boolean default false
)
returns setof "graphile_worker"._private_jobs
language plpgsql
as $body$
declare
    v_count bigint := pg_catalog.cardinality(specs);
    v_key_count bigint;
    v_queued_count bigint;
    v_new_tasks boolean;
    v_todo "graphile_worker".job_spec[] := specs;
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
    left join "graphile_worker"._private_tasks as tasks on tasks.identifier = spec.identifier;

    -- Only names that are missing, so that known ones cost no identity values; and in order, so that two callers
    -- who create the same names wait for each other and do not deadlock.
    if v_new_tasks then
        insert into "graphile_worker"._private_tasks (identifier)
        select distinct spec.identifier
        from pg_catalog.unnest(specs) as spec
        where not exists (
            select from "graphile_worker"._private_tasks as tasks
            where tasks.identifier = spec.identifier
        )
        order by spec.identifier
        on conflict on constraint tasks_identifier_key do nothing;
    end if;

    if v_queued_count > 0 then
        insert into "graphile_worker"._private_job_queues (queue_name)
        select distinct spec.queue_name
        from pg_catalog.unnest(specs) as spec
        where spec.queue_name is not null
        and not exists (
            select from "graphile_worker"._private_job_queues as job_queues
            where job_queues.queue_name = spec.queue_name
        )
        order by spec.queue_name
        on conflict on constraint job_queues_queue_name_key do nothing;
    end if;

    if v_key_count = 0 then
        return query
        insert into "graphile_worker"._private_jobs as jobs
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
        left join "graphile_worker"._private_tasks as tasks on tasks.identifier = spec.identifier
        left join "graphile_worker"._private_job_queues as job_queues
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
    v_seqscan := current_setting('enable_seqscan');
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- In the order of the keys each spec finds its key free, or waits for whoever holds the job that has it and
    -- then judges its final state: a waiting job takes the new values; any other (running, or out of attempts)
    -- gives up its key, which is ours then, and the next round adds a job for it. No condition lets a spec fall
    -- through. Whoever adds several keys takes them in this order, so two such callers wait but do not deadlock.
    loop
        with added as (
            insert into "graphile_worker"._private_jobs as jobs
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
            left join "graphile_worker"._private_tasks as tasks on tasks.identifier = spec.identifier
            left join "graphile_worker"._private_job_queues as job_queues
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
                select jobs.id from "graphile_worker"._private_jobs as jobs where jobs.key = spec.job_key
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
        from "graphile_worker"._private_jobs as jobs
        where jobs.key = spec.job_key
        union all
        select jobs.*
        from "graphile_worker"._private_jobs as jobs
        where spec.job_key is null and jobs.id = spec.unkeyed_id
    ) as jobs
    order by spec.place;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
end;
$body$;

-- remove_job(job_key): delete the job that has the key, or detach a running one from its key and its retries.
--
-- Returns the row as it was deleted or as it is now; all columns null when no job has the key.
-- The row is locked before it is checked, so that the job cannot start or end in between.

create or replace function "graphile_worker".remove_job(job_key text)
returns "graphile_worker"._private_jobs
language plpgsql
strict
as $body$
declare
    v_job "graphile_worker"._private_jobs;
    v_seqscan text := current_setting('enable_seqscan');
    v_setting text;
begin
    -- Only plans with an index: one made while the table was empty would be kept and, after a burst of new jobs,
    -- read the whole table.
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);
    select * into v_job
    from "graphile_worker"._private_jobs as jobs
    where jobs.key = remove_job.job_key
    for update;

    if v_job.locked_at is null or v_job.locked_at < now() - interval '4 hours' then
        delete from "graphile_worker"._private_jobs as jobs where jobs.id = v_job.id;
        if found then
            perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":-1}');
        end if;
    else
        -- That it gave up its key is seen by a time after its lock, however old this transaction is.
        update "graphile_worker"._private_jobs as jobs
        set key = null, attempts = jobs.max_attempts, updated_at = clock_timestamp()
        where jobs.id = v_job.id
        returning jobs.* into v_job;
    end if;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    return v_job;
end;
$body$;

-- complete_jobs(job_ids): delete those of the jobs that are not running (or whose lock is four hours old).
--
-- Returns the deleted rows; running jobs and unknown ids are left out.

create or replace function "graphile_worker".complete_jobs(job_ids bigint[])
returns setof "graphile_worker"._private_jobs
language sql
as $body$
    delete from "graphile_worker"._private_jobs as jobs
    where jobs.id = any (complete_jobs.job_ids)
    and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
    returning jobs.*;
$body$;

-- permanently_fail_jobs(job_ids, error_message): use up the attempts of those jobs that are not running.
--
-- Returns the changed rows. Locks, keys and run_at stay as they are.

create or replace function "graphile_worker".permanently_fail_jobs(
    job_ids bigint[],
    error_message text default null
)
returns setof "graphile_worker"._private_jobs
language sql
as $body$
    update "graphile_worker"._private_jobs as jobs
    set
        last_error = coalesce(permanently_fail_jobs.error_message, 'Manually marked as failed'),
        attempts = jobs.max_attempts,
        updated_at = now()
    where jobs.id = any (permanently_fail_jobs.job_ids)
    and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
    returning jobs.*;
$body$;

-- reschedule_jobs(job_ids, run_at, priority, attempts, max_attempts): overwrite what is given, keep the rest.
--
-- Changes only jobs that are not running; returns the changed rows. Sends no notification: workers find them by polling.

create or replace function "graphile_worker".reschedule_jobs(
    job_ids bigint[],
    run_at timestamptz default null,
    priority integer default null,
    attempts integer default null,
    max_attempts integer default null
)
returns setof "graphile_worker"._private_jobs
language sql
as $body$
    update "graphile_worker"._private_jobs as jobs
    set
        run_at = coalesce(reschedule_jobs.run_at, jobs.run_at),
        priority = coalesce(reschedule_jobs.priority::smallint, jobs.priority),
        attempts = coalesce(reschedule_jobs.attempts::smallint, jobs.attempts),
        max_attempts = coalesce(reschedule_jobs.max_attempts::smallint, jobs.max_attempts),
        updated_at = now()
    where jobs.id = any (reschedule_jobs.job_ids)
    and (jobs.locked_at is null or jobs.locked_at < now() - interval '4 hours')
    returning jobs.*;
$body$;

-- force_unlock_workers(worker_ids): clear the locks of these pools on jobs and queues; used attempts still count.

create or replace function "graphile_worker".force_unlock_workers(worker_ids text[])
returns void
language sql
as $body$
    update "graphile_worker"._private_jobs as jobs
    set locked_at = null, locked_by = null
    where jobs.locked_by = any (force_unlock_workers.worker_ids);

    update "graphile_worker"._private_job_queues as job_queues
    set locked_at = null, locked_by = null
    where job_queues.locked_by = any (force_unlock_workers.worker_ids);
$body$;

-- The end of an installation: notify running workers of the last revision only. Notifications of earlier, breaking ones
-- would stop workers of other schemas in this database, because they share the channel.

select pg_notify('worker:migrate', '{"migrationNumber":20,"breaking":false}');

-- The ledger of the Python-only objects, separate from the shared one. Other runtimes do not use it.

create table if not exists "graphile_worker"._private_py_migrations (
    id integer not null,
    name text not null,
    applied_at timestamptz not null default now(),
    constraint _private_py_migrations_pkey primary key (id)
);

alter table "graphile_worker"._private_py_migrations enable row level security;

-- Every file ends by recording itself.
insert into "graphile_worker"._private_py_migrations (id, name)
values (1, 'ledger')
on conflict (id) do nothing;

-- Two indexes over waiting jobs of named queues. They contain no jobs without a queue and cost those nothing.

-- The jobs of all queues in fetch order. The shared index in that order also contains jobs without a queue, and a fetch
-- would have to read past all of them.
create index if not exists _private_py_jobs_queue_order_index
on "graphile_worker"._private_jobs (priority, run_at)
where is_available and job_queue_id is not null;

-- The next job of one queue, fetched as soon as the outcome of the previous one is written.
create index if not exists _private_py_jobs_queue_next_index
on "graphile_worker"._private_jobs (job_queue_id, priority, run_at)
where is_available and job_queue_id is not null;

insert into "graphile_worker"._private_py_migrations (id, name)
values (2, 'queue_indexes')
on conflict (id) do nothing;

-- Registered worker pools, and recovery counters of jobs. Other runtimes use neither table.

-- One row for each worker pool of this package that is running, or dead and not swept yet.
create table if not exists "graphile_worker"._private_py_workers (
    id text not null, -- the pool's id, the value of locked_by
    host text not null,
    pid integer not null,
    version text not null,
    tasks text[] not null,
    concurrency integer not null,
    started_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    liveness text not null, -- what proves it alive: an advisory lock it holds, or a fresh last_seen_at
    backend_pid integer, -- of the session that holds the lock
    heartbeat_interval interval not null,
    grace interval not null, -- how long it may be unreachable before it is declared dead
    lost_at timestamptz, -- since when it is unreachable
    constraint _private_py_workers_pkey primary key (id),
    constraint _private_py_workers_liveness_check check (liveness in ('lock', 'heartbeat'))
);

-- Jobs whose worker died, and how often. Rows of jobs that no longer exist are purged from time to time.
create table if not exists "graphile_worker"._private_py_recoveries (
    job_id bigint not null,
    recoveries integer not null,
    last_at timestamptz not null default now(),
    started_by text, -- the pool that ran it last after a recovery: if it dies too, the job may be the cause
    constraint _private_py_recoveries_pkey primary key (job_id)
);

alter table "graphile_worker"._private_py_workers enable row level security;
alter table "graphile_worker"._private_py_recoveries enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (3, 'workers')
on conflict (id) do nothing;

-- Adds one job that has neither key nor queue, with the effect of add_job, for callers outside a transaction.
--
-- PostgreSQL commits transactions that notify one at a time, including their wait for the disk, so concurrent adders
-- would queue up. Here an adder that is not alone commits the job first, in a group commit with the others, and notifies
-- in a second transaction, which has nothing to flush. If the session ends in between, workers find the job by polling.

create or replace procedure "graphile_worker"._private_py_add_plain_job(
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
    insert into "graphile_worker"._private_jobs as jobs
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
    from "graphile_worker"._private_tasks as tasks
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

insert into "graphile_worker"._private_py_migrations (id, name)
values (4, 'add_plain_job')
on conflict (id) do nothing;

-- Permanently failed jobs by id, to list, count and delete them without a scan. A job enters it only when its last
-- attempt has failed, so adding, running and completing jobs pays nothing for it.
create index if not exists _private_py_jobs_failed_index
on "graphile_worker"._private_jobs (id)
where not is_available and locked_at is null;

insert into "graphile_worker"._private_py_migrations (id, name)
values (5, 'failed_index')
on conflict (id) do nothing;

-- Replaces functions that an earlier version of this package installed. Their current form calls only PostgreSQL's own
-- functions and operators, whatever other roles create in `public`. Functions of other runtimes stay. The files depend on
-- what is installed: see migrate/own_functions.py.
insert into "graphile_worker"._private_py_migrations (id, name)
values (6, 'functions')
on conflict (id) do nothing;

-- What each worker pool holds and runs, reported with its heartbeat: listing workers needs no scan of the jobs table, and
-- no index over locked jobs, which would cost every plain job.
alter table "graphile_worker"._private_py_workers
add column if not exists jobs_held integer, -- jobs locked, running or prefetched; null if the pool does not report
add column if not exists running jsonb; -- [[job id, start in seconds since 1970], ...], the longest-running first

insert into "graphile_worker"._private_py_migrations (id, name)
values (7, 'running_jobs')
on conflict (id) do nothing;

-- What blocks the event loop of a worker pool, reported by its heartbeat thread, which a blocked loop does not stop.
alter table "graphile_worker"._private_py_workers
add column if not exists blocked jsonb; -- {"task": ..., "job": ..., "since": seconds since 1970}; null while the loop runs

insert into "graphile_worker"._private_py_migrations (id, name)
values (8, 'blocked_loop')
on conflict (id) do nothing;

-- Figures of what workers of this package did, samples of the backlog, and which pool does the regular work on them.
-- Other runtimes use none of these tables.

-- One row for each minute, task and pool that ran jobs. After some minutes the rows of the pools are folded into one,
-- whose pool_id is empty. Histograms count by time: see histogram.py. They have no trailing zeros.
create table if not exists "graphile_worker"._private_py_minutes (
    minute timestamptz not null, -- by the clock of the server
    task text not null,
    pool_id text not null,
    completed integer not null,
    failed integer not null, -- attempts that failed and are retried
    permanently_failed integer not null,
    run_seconds double precision not null,
    wait_seconds double precision not null,
    longest double precision not null, -- the longest run time in seconds
    run_times integer[] not null,
    wait_times integer[] not null,
    constraint _private_py_minutes_pkey primary key (minute, task, pool_id)
)
with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- The rows to fold.
create index if not exists _private_py_minutes_pools_index
on "graphile_worker"._private_py_minutes (minute)
where pool_id <> '';

-- The sum of all folded minutes, for each hour and task.
create table if not exists "graphile_worker"._private_py_hours (
    hour timestamptz not null,
    task text not null,
    completed bigint not null,
    failed bigint not null,
    permanently_failed bigint not null,
    run_seconds double precision not null,
    wait_seconds double precision not null,
    longest double precision not null,
    run_times bigint[] not null,
    wait_times bigint[] not null,
    constraint _private_py_hours_pkey primary key (hour, task)
)
with (fillfactor = 70);

-- The jobs table every ten seconds: counters since the server started counting, and what is waiting.
create table if not exists "graphile_worker"._private_py_samples (
    at timestamptz not null,
    added bigint not null,
    deleted bigint not null,
    updated bigint not null,
    live bigint not null, -- all jobs, as the server's statistics say
    ready bigint not null,
    scheduled bigint not null,
    failed bigint not null, -- permanently
    is_estimate boolean not null, -- whether one of the three counts is estimated
    oldest_wait double precision not null, -- seconds since the oldest ready job could run
    constraint _private_py_samples_pkey primary key (at)
);

-- Regular work that one pool does for all, and when it was done last.
create table if not exists "graphile_worker"._private_py_duties (
    name text not null,
    pool_id text not null,
    done_at timestamptz not null,
    constraint _private_py_duties_pkey primary key (name)
);

alter table "graphile_worker"._private_py_minutes enable row level security;
alter table "graphile_worker"._private_py_hours enable row level security;
alter table "graphile_worker"._private_py_samples enable row level security;
alter table "graphile_worker"._private_py_duties enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (9, 'figures')
on conflict (id) do nothing;

-- What became of jobs that are gone: ends of kept jobs, and the errors of every attempt. Other runtimes use neither.
--
-- Both tables are partitioned by the day on which their rows expire, whatever their retention: retention is dropping a
-- partition, which leaves no dead rows. Partitions are made ahead by sweeps, and by the write that misses one.

-- The names of tasks, which stay when `cleanup` deletes unused ones. A number keeps rows and their index small.
create table if not exists "graphile_worker"._private_py_task_names (
    id integer not null,
    identifier text not null,
    constraint _private_py_task_names_pkey primary key (id)
);

create table if not exists "graphile_worker"._private_py_history (
    job_id bigint not null,
    task_id integer not null, -- see _private_py_task_names
    state text not null, -- completed, failed, cancelled, expired or removed
    queue_name text,
    job_key text,
    priority smallint not null,
    attempts smallint not null,
    max_attempts smallint not null,
    created_at timestamptz not null,
    run_at timestamptz not null,
    started_at timestamptz, -- of the last attempt
    finished_at timestamptz not null,
    duration double precision, -- of the last attempt, in seconds by the worker's clock
    pool_id text,
    flags jsonb,
    payload json, -- only if the task or the job asks for it
    result json,
    error text,
    expires_on date not null -- the last day, UTC
) partition by range (expires_on);

create index if not exists _private_py_history_job_index
on "graphile_worker"._private_py_history (job_id);

create index if not exists _private_py_history_finished_index
on "graphile_worker"._private_py_history (finished_at);

create index if not exists _private_py_history_task_index
on "graphile_worker"._private_py_history (task_id, finished_at);

-- Most jobs complete, and pay nothing for these two.
create index if not exists _private_py_history_state_index
on "graphile_worker"._private_py_history (state, finished_at) where state <> 'completed';

create index if not exists _private_py_history_task_state_index
on "graphile_worker"._private_py_history (task_id, state, finished_at) where state <> 'completed';

create table if not exists "graphile_worker"._private_py_errors (
    job_id bigint not null,
    attempt smallint not null,
    task_id integer not null,
    failed_at timestamptz not null,
    duration double precision,
    is_final boolean not null, -- whether the job failed permanently
    error_type text,
    message text not null,
    traceback text,
    fingerprint text not null, -- the same for errors of the same kind from the same place
    pool_id text,
    version text, -- of the application, as the worker was told
    expires_on date not null
) partition by range (expires_on);

create index if not exists _private_py_errors_job_index
on "graphile_worker"._private_py_errors (job_id);

create index if not exists _private_py_errors_group_index
on "graphile_worker"._private_py_errors (fingerprint, failed_at);

create index if not exists _private_py_errors_failed_index
on "graphile_worker"._private_py_errors (failed_at);

-- One row for each fingerprint: what kind of error it is, how often it occurred and since when. Pools add what they have
-- counted every few seconds, so errors beyond the limit of those that are kept count too.
create table if not exists "graphile_worker"._private_py_error_groups (
    fingerprint text not null,
    task_id integer not null,
    error_type text not null,
    message text not null, -- of the latest error
    place text not null, -- file and function
    first_at timestamptz not null,
    last_at timestamptz not null,
    errors bigint not null,
    permanent bigint not null, -- errors with which a job failed permanently
    last_job_id bigint not null,
    first_version text, -- of the application
    last_version text,
    constraint _private_py_error_groups_pkey primary key (fingerprint)
) with (fillfactor = 80);

create index if not exists _private_py_error_groups_last_index
on "graphile_worker"._private_py_error_groups (last_at);

alter table "graphile_worker"._private_py_error_groups enable row level security;
alter table "graphile_worker"._private_py_task_names enable row level security;
alter table "graphile_worker"._private_py_history enable row level security;
alter table "graphile_worker"._private_py_errors enable row level security;

-- Makes the partition for one day, and returns whether it was missing. Attaching a table, unlike
-- `create table ... partition of`, does not wait for writers.
create or replace function "graphile_worker"._private_py_add_partition(parent regclass, day date)
returns boolean
language plpgsql
set search_path = pg_catalog
as $body$
declare
    schema_name text;
    partition text;
begin
    select namespace.nspname, class.relname || to_char(day, '_YYYYMMDD')
    into schema_name, partition
    from pg_class as class join pg_namespace as namespace on namespace.oid = class.relnamespace
    where class.oid = parent;
    if to_regclass(pg_catalog.format('%I.%I', schema_name, partition)) is not null then
        return false;
    end if;
    -- Workers that miss partitions at the same time make them one after the other. One lock for all partitions, taken
    -- before any on a table, so that they cannot wait for each other.
    perform pg_advisory_xact_lock(hashtext(schema_name || ' history'));
    -- A query, not to_regclass, which may still remember that there was none.
    if exists (
        select from pg_class as class join pg_namespace as namespace on namespace.oid = class.relnamespace
        where namespace.nspname = schema_name and class.relname = partition
    ) then
        return false;
    end if;
    execute pg_catalog.format('create table %I.%I (like %s including all)', schema_name, partition, parent);
    execute pg_catalog.format('alter table %I.%I enable row level security', schema_name, partition);
    execute pg_catalog.format(
        'alter table %s attach partition %I.%I for values from (%L) to (%L)',
        parent, schema_name, partition, day, day + 1
    );
    return true;
end;
$body$;

-- Drops the partitions whose last day is before `day`, and returns their number. The lock on the parent waits for
-- statements that run, and holds up those that come later, so the caller sets a short lock_timeout.
create or replace function "graphile_worker"._private_py_drop_partitions(parent regclass, day date)
returns integer
language plpgsql
set search_path = pg_catalog
as $body$
declare
    partition record;
    dropped integer := 0;
begin
    for partition in
        select namespace.nspname as schema_name, class.relname as name
        from pg_inherits as inheritance
        join pg_class as class on class.oid = inheritance.inhrelid
        join pg_namespace as namespace on namespace.oid = class.relnamespace
        where inheritance.inhparent = parent
            and class.relname ~ '_[0-9]{8}$'
            and to_date(right(class.relname, 8), 'YYYYMMDD') < day
        order by class.relname
    loop
        execute pg_catalog.format('drop table %I.%I', partition.schema_name, partition.name);
        dropped := dropped + 1;
    end loop;
    return dropped;
end;
$body$;

insert into "graphile_worker"._private_py_migrations (id, name)
values (10, 'history')
on conflict (id) do nothing;

-- How far running jobs are, as their tasks report it. Unlogged: worthless after a crash, because no job runs then.
create unlogged table if not exists "graphile_worker"._private_py_progress (
    job_id bigint not null,
    share double precision, -- from 0 to 1
    note text,
    data json,
    updated_at timestamptz not null default now(),
    constraint _private_py_progress_pkey primary key (job_id)
) with (fillfactor = 50);

alter table "graphile_worker"._private_py_progress enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (11, 'progress')
on conflict (id) do nothing;

-- What operators ask of workers: pauses of tasks, holds of queues, and jobs to cancel. Empty for those who ask for
-- nothing. A change is announced on the channel worker:py; workers also look every few seconds.

-- Tasks whose jobs Python workers do not start. Node and Rust do not read it.
create table if not exists "graphile_worker"._private_py_pauses (
    task text not null, -- identifier; empty for every task
    until timestamptz, -- null for no end
    reason text,
    paused_at timestamptz not null default now(),
    constraint _private_py_pauses_pkey primary key (task)
);

-- Named queues that no runtime takes a job from. Their rows in _private_job_queues are locked by py:hold.
create table if not exists "graphile_worker"._private_py_queue_holds (
    queue_id integer not null,
    until timestamptz, -- null for no end
    reason text,
    held_at timestamptz not null default now(),
    holder text, -- the pool that had the queue locked when it was paused
    job_id bigint, -- the queue was resumed while this job of the holder was running
    constraint _private_py_queue_holds_pkey primary key (queue_id)
);

-- Jobs that were cancelled while a worker had them locked. The row goes with the job.
create table if not exists "graphile_worker"._private_py_cancels (
    job_id bigint not null,
    reason text,
    asked_at timestamptz not null default now(),
    constraint _private_py_cancels_pkey primary key (job_id)
);

alter table "graphile_worker"._private_py_pauses enable row level security;
alter table "graphile_worker"._private_py_queue_holds enable row level security;
alter table "graphile_worker"._private_py_cancels enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (12, 'control')
on conflict (id) do nothing;

-- Limits: how many jobs of some tasks Python workers run at once, and how many they start in a period.
--
-- The fetch function includes parts of other fetches. If one of them changes, this function must be created again by a
-- file with a new number; tests/migrations/test_mended_objects.py notices.

-- The bounds come from the code, written by the worker that started last, and from operators. Those of operators win.
create table if not exists "graphile_worker"._private_py_limits (
    name text not null,
    code_concurrency integer,
    code_starts double precision, -- this many starts ...
    code_period double precision, -- ... in a period of this many seconds
    code_burst double precision,
    tasks text[] not null default '{}', -- identifiers of the tasks that have this limit
    started_at timestamptz not null default now(), -- when a worker last brought these bounds
    set_concurrency integer,
    set_starts double precision,
    set_period double precision,
    set_burst double precision,
    set_at timestamptz,
    -- What is in force.
    max_running integer generated always as (coalesce(set_concurrency, code_concurrency)) stored,
    rate double precision -- starts per second
        generated always as (coalesce(set_starts / set_period, code_starts / code_period)) stored,
    burst double precision -- starts at once after a rest; half a second's worth if it is not given
        generated always as (
            coalesce(
                set_burst, code_burst, greatest(
                    1::double precision,
                    ceil(coalesce(set_starts / set_period, code_starts / code_period) * 0.5::double precision)
                )
            )
        ) stored,
    -- Jobs that may start now, as of refilled_at. A new limit may use its whole burst.
    tokens double precision not null default 'infinity',
    refilled_at timestamptz not null default clock_timestamp(),
    is_awaited boolean not null default false, -- a pool found no room and wants to be notified
    constraint _private_py_limits_pkey primary key (name)
);

-- Which jobs use a limit. A row counts only while the pool has the job locked, so nothing has to be released: not when
-- a job ends, not when its worker dies, not when another worker recovers it.
create table if not exists "graphile_worker"._private_py_limit_holds (
    limit_name text not null,
    job_id bigint not null,
    pool_id text not null,
    constraint _private_py_limit_holds_pkey primary key (limit_name, job_id)
);

-- Locks the next jobs of limited tasks, as many as their limits leave room for.
--
-- Returns the columns of each job, unordered, then one row without an id. Its payload is a JSON object:
--   room          how many jobs could be locked at most
--   wait          seconds until a job may start again; null if no rate is used up
--   is_full       whether as many jobs run as may run at once
--   is_counted    whether the number of running jobs is limited
--   may_prefetch  whether jobs may be locked some time before they start
--   is_busy       another fetch uses one of the limits; nothing was done
--   is_missing    a limit has no row; nothing was done
--
-- Several statements, because each must see what the last holder of the limit has committed. In READ COMMITTED a single
-- one sees the tables as of its beginning, before it had the lock.
create or replace function "graphile_worker"._private_py_get_limited_jobs(
    pool_id text,
    task_ids text, -- an array literal such as {1,2}
    wanted integer,
    forbidden_flags text[], -- or null
    worker_time timestamptz, -- or null for the server's
    lowest smallint[], -- ranges of priorities to read, as for get_jobs_above_watermarks; or null
    highest smallint[],
    since double precision[],
    limit_names text[],
    is_wide boolean -- whether there are wide queues; see get_jobs for them
)
returns table (
    id bigint, payload text, priority smallint, run_at double precision, attempts smallint, max_attempts smallint,
    last_error text, created_at double precision, updated_at double precision, key text, locked_at double precision,
    revision integer, flags text, task_id integer, job_queue_id integer
)
language plpgsql
as $body$
#variable_conflict use_column
declare
    longest_delay constant double precision := 0.2; -- seconds from the lock of a prefetched job to its start
    limit_count integer := pg_catalog.cardinality($9);
    locked integer;
    moment timestamptz;
    rule record;
    smaller_burst double precision;
    tokens_of double precision[]; -- of each limit, in the order of names
    free_of integer[];
    nth integer := 0;
    held integer;
    asked integer := $3;
    room integer := $3;
    taken integer := 0;
    wait double precision;
    is_full boolean := false;
    is_counted boolean := false;
    may_prefetch boolean := true;
    tells_others boolean := false;
    queues_may_be_next boolean;
    places tid[];
    queue_ids integer[];
    moved jsonb; -- new queues by ctid
begin
    -- One fetch at a time. A pool that finds another at it comes back soon: waiting here would hold up the fetches of
    -- its other lanes, and those of every pool if one session hangs.
    perform from "graphile_worker"._private_py_limits
    where name = any ($9) order by name for update skip locked;
    get diagnostics locked = row_count;
    if locked < limit_count then
        select pg_catalog.json_build_object(
            case when count(*)::integer < limit_count then 'is_missing' else 'is_busy' end, true
        )
        into payload
        from "graphile_worker"._private_py_limits where name = any ($9);
        return next;
        return;
    end if;

    moment := clock_timestamp();
    for rule in
        select name, max_running, rate, burst, tokens, refilled_at
        from "graphile_worker"._private_py_limits where name = any ($9) order by name
    loop
        nth := nth + 1;
        if rule.max_running is not null then
            -- What ended, or was taken from its pool, does not count: the lock of the job is the truth.
            delete from "graphile_worker"._private_py_limit_holds hold
            where hold.limit_name = rule.name and not exists (
                select from "graphile_worker"._private_jobs job
                where job.id = hold.job_id and job.locked_by = hold.pool_id
            );
            select count(*)::integer into held
            from "graphile_worker"._private_py_limit_holds hold where hold.limit_name = rule.name;
            free_of[nth] := rule.max_running - held;
            room := least(room, free_of[nth]);
            is_counted := true;
        end if;
        if rule.rate is not null then
            -- A prefetched job starts later than its token was taken, when further tokens may have come. The bucket is
            -- smaller by what comes in that time, or nothing is prefetched.
            smaller_burst := rule.burst - rule.rate * longest_delay;
            if rule.rate * longest_delay >= 1::double precision
                and smaller_burst >= rule.burst / 2::double precision
            then
                rule.burst := smaller_burst;
            else
                may_prefetch := false;
            end if;
            tokens_of[nth] := least(
                rule.burst,
                rule.tokens + rule.rate
                * greatest(0::double precision, date_part('epoch', moment - rule.refilled_at))
            );
            room := least(room, floor(tokens_of[nth])::integer);
        end if;
    end loop;

    room := greatest(room, 0);
    if room > 0 then
        $3 := room;
        if not $10 then
            with recursive
-- Whether a job of a named queue may be next: one of the queues with waiting jobs is free, or there are too many to check.
waiting_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join "graphile_worker"._private_job_queues queue on queue.id = waiting.id
)
            select may_be_next into queues_may_be_next from queues;
        end if;
        if $10 and $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
plain_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
,
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: `queued` for queues that may run several jobs
-- at once. A job of a queue, its home, is moved to the row whose lock it takes: the home's own, or a free track's.
--
-- Jobs are considered as `queued` considers them. Tracks that are closed take no job, but their jobs are those of the home.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
queue_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority > last.priority
    order by job.priority limit 1
  )
  from queue_priority last where last.priority is not null
),
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        (
          select case
            when queue_priority.priority < cutoff.priority then 'infinity'
            when queue_priority.priority = cutoff.priority then cutoff.run_at
            else '-infinity'
          end
          from cutoff
        )
      )
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- The jobs of each home, the first ones first, in arrays: a join of jobs and free rows would compare each with each.
home as materialized (
  select
    home_id as id, min(priority) as priority, min(run_at) as run_at,
    pg_catalog.array_agg(place order by priority, run_at) as places,
    pg_catalog.array_agg(job_queue_id order by priority, run_at) as queues,
    pg_catalog.array_agg(priority order by priority, run_at) as priorities,
    pg_catalog.array_agg(run_at order by priority, run_at) as times
  from (
    select examined.*, coalesce(track.home_id, examined.job_queue_id) as home_id
    from examined
    left join "graphile_worker"._private_py_tracks track on track.queue_id = examined.job_queue_id
  ) examined
  group by home_id
),
queued as materialized (
  select
    job.place, member.id as job_queue_id, home.queues[member.turn] as old_queue_id,
    home.priorities[member.turn] as priority, home.times[member.turn] as run_at
  from (select * from home order by priority, run_at) home
  cross join lateral (
    select locked.id, (row_number() over ())::integer as turn
    from (
      select queue.id from "graphile_worker"._private_job_queues queue
      where queue.is_available and queue.id = any (
        array(
          select home.id
          union all
          select track.queue_id from "graphile_worker"._private_py_tracks track
          where track.home_id = home.id and not track.is_closed
        )
      )
      limit pg_catalog.cardinality(home.places)
      for update skip locked
    ) locked
  ) member
  cross join lateral (
    -- The turn makes this run after the lock of the row; see `queued`.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = home.places[member.turn] and job.job_queue_id = home.queues[member.turn]
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = home.places[member.turn] -- otherwise it was changed by now and cannot be taken
  limit $3
),
other_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
      and (select count(*) from examined) >= 2 * $3 + 40 and not exists (select from queued)
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from other_queue last where last.id is not null
),
-- Of each other home with a free row, the first job.
other_head as materialized (
  select distinct on (other.home_id) next.place, other.id as queue_id, other.home_id, next.priority, next.run_at
  from (
    select other_queue.id, coalesce(track.home_id, other_queue.id) as home_id
    from (
      select id from other_queue
      limit (
        select case
          when exists (
            select from home
            join "graphile_worker"._private_job_queues queue on queue.id = home.id and queue.is_available
          ) then 2 * $3 + 40
        end
      )
    ) other_queue
    left join "graphile_worker"._private_py_tracks track on track.queue_id = other_queue.id
    where other_queue.id is not null
  ) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
  ) free
  cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other.home_id not in (select id from home)
  order by other.home_id, next.priority, next.run_at
),
other_queued as materialized (
  select job.place, queue.id as job_queue_id, other.queue_id as old_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = other.queue_id and queue.id is not null
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id, old_queue_id from (
    select place, job_queue_id, job_queue_id as old_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;
        elsif $10 then
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from unnest($6::smallint[], $7::smallint[], $8::double precision[]) as range (low, high, since)
  cross join lateral (
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.run_at
      limit $3::integer
      for update skip locked
    ) known
    union all
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: `queued` for queues that may run several jobs
-- at once. A job of a queue, its home, is moved to the row whose lock it takes: the home's own, or a free track's.
--
-- Jobs are considered as `queued` considers them. Tracks that are closed take no job, but their jobs are those of the home.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
queue_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority > last.priority
    order by job.priority limit 1
  )
  from queue_priority last where last.priority is not null
),
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        (
          select case
            when queue_priority.priority < cutoff.priority then 'infinity'
            when queue_priority.priority = cutoff.priority then cutoff.run_at
            else '-infinity'
          end
          from cutoff
        )
      )
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- The jobs of each home, the first ones first, in arrays: a join of jobs and free rows would compare each with each.
home as materialized (
  select
    home_id as id, min(priority) as priority, min(run_at) as run_at,
    pg_catalog.array_agg(place order by priority, run_at) as places,
    pg_catalog.array_agg(job_queue_id order by priority, run_at) as queues,
    pg_catalog.array_agg(priority order by priority, run_at) as priorities,
    pg_catalog.array_agg(run_at order by priority, run_at) as times
  from (
    select examined.*, coalesce(track.home_id, examined.job_queue_id) as home_id
    from examined
    left join "graphile_worker"._private_py_tracks track on track.queue_id = examined.job_queue_id
  ) examined
  group by home_id
),
queued as materialized (
  select
    job.place, member.id as job_queue_id, home.queues[member.turn] as old_queue_id,
    home.priorities[member.turn] as priority, home.times[member.turn] as run_at
  from (select * from home order by priority, run_at) home
  cross join lateral (
    select locked.id, (row_number() over ())::integer as turn
    from (
      select queue.id from "graphile_worker"._private_job_queues queue
      where queue.is_available and queue.id = any (
        array(
          select home.id
          union all
          select track.queue_id from "graphile_worker"._private_py_tracks track
          where track.home_id = home.id and not track.is_closed
        )
      )
      limit pg_catalog.cardinality(home.places)
      for update skip locked
    ) locked
  ) member
  cross join lateral (
    -- The turn makes this run after the lock of the row; see `queued`.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = home.places[member.turn] and job.job_queue_id = home.queues[member.turn]
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = home.places[member.turn] -- otherwise it was changed by now and cannot be taken
  limit $3
),
other_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
      and (select count(*) from examined) >= 2 * $3 + 40 and not exists (select from queued)
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from other_queue last where last.id is not null
),
-- Of each other home with a free row, the first job.
other_head as materialized (
  select distinct on (other.home_id) next.place, other.id as queue_id, other.home_id, next.priority, next.run_at
  from (
    select other_queue.id, coalesce(track.home_id, other_queue.id) as home_id
    from (
      select id from other_queue
      limit (
        select case
          when exists (
            select from home
            join "graphile_worker"._private_job_queues queue on queue.id = home.id and queue.is_available
          ) then 2 * $3 + 40
        end
      )
    ) other_queue
    left join "graphile_worker"._private_py_tracks track on track.queue_id = other_queue.id
    where other_queue.id is not null
  ) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
  ) free
  cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other.home_id not in (select id from home)
  order by other.home_id, next.priority, next.run_at
),
other_queued as materialized (
  select job.place, queue.id as job_queue_id, other.queue_id as old_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = other.queue_id and queue.id is not null
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id, old_queue_id from (
    select place, job_queue_id, job_queue_id as old_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;
        elsif queues_may_be_next and $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
plain_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
,
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks: finds the next job of each named queue, and chooses the first of these
-- and of the jobs of `plain`. `take_chosen` takes them.
--
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
queue_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority > last.priority
    order by job.priority limit 1
  )
  from queue_priority last where last.priority is not null
),
-- A bounded number of jobs of named queues in run order ...
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        (
          select case
            when queue_priority.priority < cutoff.priority then 'infinity'
            when queue_priority.priority = cutoff.priority then cutoff.run_at
            else '-infinity'
          end
          from cutoff
        )
      )
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- ... of which the first of each queue is taken, if the rows of the queue and the job can be locked without waiting.
head as materialized (
  select distinct on (job_queue_id) place, job_queue_id, priority, run_at
  from examined order by job_queue_id, priority, run_at
),
queued as materialized (
  select head.place, head.job_queue_id, head.priority, head.run_at
  from (select * from head order by priority, run_at) head
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = head.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    -- The queue's id makes this run after the lock of the queue: jobs of a queue that another pool has locked must not be
    -- locked even briefly, or that pool would skip them when it continues the queue.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
other_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
      and (select count(*) from examined) >= 2 * $3 + 40 and not exists (select from queued)
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from other_queue last where last.id is not null
),
other_head as materialized (
  select next.place, next.job_queue_id, next.priority, next.run_at
  from (
    select id from other_queue
    limit (
      select case
        when exists (
          select from head
          join "graphile_worker"._private_job_queues queue
            on queue.id = head.job_queue_id and queue.is_available
        ) then 2 * $3 + 40
      end
    )
  ) other_queue
  join "graphile_worker"._private_job_queues queue on queue.id = other_queue.id and queue.is_available
  cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other_queue.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = other.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id from (
    select place, job_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null)
            into places, queue_ids;
        elsif queues_may_be_next then
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from unnest($6::smallint[], $7::smallint[], $8::double precision[]) as range (low, high, since)
  cross join lateral (
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.run_at
      limit $3::integer
      for update skip locked
    ) known
    union all
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks: finds the next job of each named queue, and chooses the first of these
-- and of the jobs of `plain`. `take_chosen` takes them.
--
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
queue_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority > last.priority
    order by job.priority limit 1
  )
  from queue_priority last where last.priority is not null
),
-- A bounded number of jobs of named queues in run order ...
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        (
          select case
            when queue_priority.priority < cutoff.priority then 'infinity'
            when queue_priority.priority = cutoff.priority then cutoff.run_at
            else '-infinity'
          end
          from cutoff
        )
      )
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- ... of which the first of each queue is taken, if the rows of the queue and the job can be locked without waiting.
head as materialized (
  select distinct on (job_queue_id) place, job_queue_id, priority, run_at
  from examined order by job_queue_id, priority, run_at
),
queued as materialized (
  select head.place, head.job_queue_id, head.priority, head.run_at
  from (select * from head order by priority, run_at) head
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = head.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    -- The queue's id makes this run after the lock of the queue: jobs of a queue that another pool has locked must not be
    -- locked even briefly, or that pool would skip them when it continues the queue.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
other_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
      and (select count(*) from examined) >= 2 * $3 + 40 and not exists (select from queued)
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from other_queue last where last.id is not null
),
other_head as materialized (
  select next.place, next.job_queue_id, next.priority, next.run_at
  from (
    select id from other_queue
    limit (
      select case
        when exists (
          select from head
          join "graphile_worker"._private_job_queues queue
            on queue.id = head.job_queue_id and queue.is_available
        ) then 2 * $3 + 40
      end
    )
  ) other_queue
  join "graphile_worker"._private_job_queues queue on queue.id = other_queue.id and queue.is_available
  cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other_queue.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = other.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id from (
    select place, job_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null)
            into places, queue_ids;
        elsif $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
plain_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
,
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
            nothing as (select)
            select array(select place from plain) into places;
        else
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from unnest($6::smallint[], $7::smallint[], $8::double precision[]) as range (low, high, since)
  cross join lateral (
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.run_at
      limit $3::integer
      for update skip locked
    ) known
    union all
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
            nothing as (select)
            select array(select place from plain) into places;
        end if;
        taken := pg_catalog.cardinality(places);
    end if;

    nth := 0;
    for rule in
        select name, max_running, rate, refilled_at, is_awaited
        from "graphile_worker"._private_py_limits where name = any ($9) order by name
    loop
        nth := nth + 1;
        if rule.rate is not null then
            tokens_of[nth] := tokens_of[nth] - taken::double precision;
            if tokens_of[nth] < 1::double precision then
                wait := greatest(wait, (1::double precision - tokens_of[nth]) / rule.rate);
            end if;
        end if;
        if rule.max_running is not null then
            free_of[nth] := free_of[nth] - taken;
            is_full := is_full or free_of[nth] <= 0;
        end if;
        if rule.is_awaited and (rule.max_running is null or free_of[nth] > 0) then
            tells_others := true;
            update "graphile_worker"._private_py_limits set is_awaited = false where name = rule.name;
        elsif free_of[nth] <= 0 and taken < asked and not rule.is_awaited then
            update "graphile_worker"._private_py_limits set is_awaited = true where name = rule.name;
        end if;
        -- A clock that was set back, as by a failover, would otherwise refill nothing until it catches up.
        if rule.rate is not null and (taken > 0 or rule.refilled_at > moment) then
            update "graphile_worker"._private_py_limits
            set tokens = tokens_of[nth], refilled_at = moment where name = rule.name;
        end if;
    end loop;
    if tells_others then
        perform pg_notify('worker:py', '{"limits":1}');
    end if;

    if taken > 0 then
        if is_counted then
            insert into "graphile_worker"._private_py_limit_holds as hold (limit_name, job_id, pool_id)
            select limits.name, job.id, $1
            from "graphile_worker"._private_py_limits limits
            cross join "graphile_worker"._private_jobs job
            where limits.name = any ($9) and limits.max_running is not null and job.ctid = any (places)
            on conflict on constraint _private_py_limit_holds_pkey do update set pool_id = excluded.pool_id;
        end if;
        if queue_ids <> '{}' then
            update "graphile_worker"._private_job_queues queue
            set locked_by = $1, locked_at = coalesce($5, now())
            where queue.id = any (queue_ids);
        end if;
        return query
        update "graphile_worker"._private_jobs job
        set
            attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5, now()),
            job_queue_id = coalesce((moved ->> job.ctid::text)::integer, job.job_queue_id)
        where job.ctid = any (places)
        returning
  -- The columns of a fetched job, in the order of Job's fields. As few as possible, for there are tens of thousands per
  -- second: the worker knows the pool's id and the task's identifier.
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
        ;
    end if;
    payload := pg_catalog.json_build_object(
        'room', room, 'wait', wait, 'is_full', is_full, 'is_counted', is_counted, 'may_prefetch', may_prefetch
    );
    return next;
end;
$body$;

alter table "graphile_worker"._private_py_limits enable row level security;
alter table "graphile_worker"._private_py_limit_holds enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (13, 'limits')
on conflict (id) do nothing;

-- Adds one job that is unique by its arguments, which its key stands for, unless there is one.
--
-- Unlike unsafe_dedupe, a job that has failed permanently does not count: it loses its key, and the new job takes its
-- place. Only the Python package calls it; the unique index on keys holds for jobs of every runtime.

create or replace function "graphile_worker"._private_py_add_unique_job(
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
    out job "graphile_worker"._private_jobs,
    out is_new boolean
)
language plpgsql
as $body$
declare
    v_task_id integer;
    v_queue_id integer;
    v_seqscan text := current_setting('enable_seqscan');
    v_setting text;
begin
    is_new := false;
    -- Only plans with an index, whatever the size of the tables when they are made; see add_job.
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    loop
        -- The lock waits for a worker that is about to take the job, and keeps others from taking it before the caller
        -- has committed: what the caller has changed is seen by the job.
        select jobs.* into job
        from "graphile_worker"._private_jobs as jobs
        where jobs.key = new_key and jobs.is_available
        for update;
        exit when found;

        -- A running job is not locked: its worker must not wait for the caller. One that was cancelled does not count.
        if new_while = 'waiting or running' then
            select jobs.* into job
            from "graphile_worker"._private_jobs as jobs
            where jobs.key = new_key and jobs.locked_at is not null
            and not exists (
                select from "graphile_worker"._private_py_cancels as cancels where cancels.job_id = jobs.id
            );
            exit when found;
        end if;

        -- Any other job loses its key and its remaining attempts, as in add_job.
        update "graphile_worker"._private_jobs as jobs
        set key = null, attempts = jobs.max_attempts, updated_at = clock_timestamp()
        where jobs.key = new_key and not jobs.is_available
        and (
            new_while = 'waiting' or jobs.locked_at is null
            or exists (
                select from "graphile_worker"._private_py_cancels as cancels where cancels.job_id = jobs.id
            )
        );

        loop
            select tasks.id into v_task_id
            from "graphile_worker"._private_tasks as tasks
            where tasks.identifier = new_task;
            exit when found;
            insert into "graphile_worker"._private_tasks (identifier)
            values (new_task)
            on conflict on constraint tasks_identifier_key do nothing;
        end loop;
        while new_queue is not null loop
            select job_queues.id into v_queue_id
            from "graphile_worker"._private_job_queues as job_queues
            where job_queues.queue_name = new_queue;
            exit when found;
            insert into "graphile_worker"._private_job_queues (queue_name)
            values (new_queue)
            on conflict on constraint job_queues_queue_name_key do nothing;
        end loop;

        insert into "graphile_worker"._private_jobs as jobs
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

insert into "graphile_worker"._private_py_migrations (id, name)
values (14, 'unique_jobs')
on conflict (id) do nothing;

-- Wide queues: named queues that may run several jobs at once. Such a queue owns further rows of the shared table of
-- queues, its tracks, each an ordinary serial queue to every runtime. Jobs are added to the queue itself, its home; a
-- Python fetch moves a job to a free track as it locks it. So nothing is counted, and nothing can be counted wrongly.

-- Widths that were set by hand. They are kept by name, since an unused queue may be deleted and made again.
create table if not exists "graphile_worker"._private_py_queue_widths (
    queue_name text not null,
    width integer not null,
    constraint _private_py_queue_widths_pkey primary key (queue_name),
    constraint _private_py_queue_widths_check check (width between 1 and 1000)
);

create table if not exists "graphile_worker"._private_py_tracks (
    queue_id integer not null, -- its row in _private_job_queues, named like "tenant:7 [2]"
    home_id integer not null,
    is_closed boolean not null default false, -- takes no job any more; its row is held until its job has ended
    constraint _private_py_tracks_pkey primary key (queue_id)
);
create index if not exists _private_py_tracks_home_index on "graphile_worker"._private_py_tracks (home_id);

alter table "graphile_worker"._private_py_queue_widths enable row level security;
alter table "graphile_worker"._private_py_tracks enable row level security;

-- Gives queues as many tracks as their widths ask for. A width that was set by hand counts, else the one in new_widths;
-- null leaves it as it is. The ids may be those of tracks. Returns how many tracks were made and closed.
create or replace function "graphile_worker"._private_py_set_tracks(
    new_queue_ids integer[],
    new_widths integer[]
)
returns bigint
language plpgsql
as $body$
declare
    v_homes integer[];
    v_widths integer[];
    v_made bigint;
    v_closing integer[];
    v_idle integer[];
    v_seqscan text := current_setting('enable_seqscan');
    v_setting text;
begin
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- Most have their tracks: then this is all. Entries without a row are those of tracks that a clean-up has deleted.
    -- Look-ups instead of joins: the sessions of workers have settings that would make bad plans for joins.
    select pg_catalog.array_agg(home.id order by home.id), pg_catalog.array_agg(home.width order by home.id)
    into v_homes, v_widths
    from (
        select
            home.id, tracks.open,
            coalesce(
                (
                    select by_hand.width::bigint
                    from "graphile_worker"._private_py_queue_widths as by_hand
                    where by_hand.queue_name = home.queue_name
                ),
                wanted.width::bigint,
                tracks.entries + 1
            )::integer as width
        from (
            select
                coalesce(
                    (
                        select track.home_id
                        from "graphile_worker"._private_py_tracks as track
                        where track.queue_id = given.id
                    ),
                    given.id
                ) as id,
                max(given.width) as width
            from unnest(new_queue_ids, new_widths) as given (id, width)
            group by 1
        ) as wanted
        cross join lateral (
            select queue.id, queue.queue_name
            from "graphile_worker"._private_job_queues as queue
            where queue.id = wanted.id
            limit 1
        ) as home
        cross join lateral (
            select
                count(*) as entries,
                count(*) filter (
                    where exists (
                        select from "graphile_worker"._private_job_queues as queue where queue.id = track.queue_id
                    )
                ) as open
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = home.id and not track.is_closed
        ) as tracks
        where pg_catalog.length(home.queue_name) <= 120
    ) as home
    where home.open <> home.width - 1;
    if v_homes is null then
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
        return 0;
    end if;

    -- One at a time, in the order of the ids; what follows sees what others have done meanwhile.
    perform home.id
    from "graphile_worker"._private_job_queues as home
    where home.id = any(v_homes)
    order by home.id
    for update;
    v_widths := array(
        select
            coalesce(
                (
                    select by_hand.width
                    from "graphile_worker"._private_py_queue_widths as by_hand
                    where by_hand.queue_name = (
                        select home.queue_name
                        from "graphile_worker"._private_job_queues as home
                        where home.id = wanted.id
                    )
                ),
                wanted.width
            )
        from unnest(v_homes, v_widths) with ordinality as wanted (id, width, place)
        order by wanted.place
    );

    -- Entries of tracks that were deleted, and closed tracks whose jobs have ended.
    delete from "graphile_worker"._private_py_tracks as track
    where track.home_id = any(v_homes)
    and not exists (
        select from "graphile_worker"._private_job_queues as queue where queue.id = track.queue_id
    );
    v_idle := array(
        select track.queue_id
        from "graphile_worker"._private_py_tracks as track
        where track.home_id = any(v_homes) and track.is_closed
    );
    if v_idle <> '{}'::integer[] then
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true); -- no index has all jobs of a queue
        v_idle := array(
            select idle.id from pg_catalog.unnest(v_idle) as idle (id)
            except
            select job.job_queue_id from "graphile_worker"._private_jobs as job where job.job_queue_id = any(v_idle)
        );
        delete from "graphile_worker"._private_job_queues as queue where queue.id = any(v_idle);
        delete from "graphile_worker"._private_py_tracks as track where track.queue_id = any(v_idle);
        v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);
    end if;

    -- Too few: make more. Those of a paused queue are held as well.
    with wanted as (
        select
            home.id, home.queue_name, given.width, tracks.open, tracks.entries,
            home.locked_by is not distinct from 'py:hold' as is_held
        from unnest(v_homes, v_widths) as given (id, width)
        cross join lateral (
            select queue.id, queue.queue_name, queue.locked_by
            from "graphile_worker"._private_job_queues as queue
            where queue.id = given.id
            limit 1
        ) as home
        cross join lateral (
            select
                (count(*) filter (where not track.is_closed))::integer as open, count(*)::integer as entries
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = home.id
        ) as tracks
    ),
    chosen as materialized (
        select wanted.id as home_id, free.name, wanted.is_held
        from wanted
        cross join lateral (
            select names.name
            from (
                select number, wanted.queue_name || ' [' || number::text || ']' as name
                from pg_catalog.generate_series(2, wanted.width + wanted.entries) as number
            ) as names
            where not exists (
                select
                from "graphile_worker"._private_py_tracks as track
                where track.queue_id = (
                    select queue.id
                    from "graphile_worker"._private_job_queues as queue
                    where queue.queue_name = names.name
                )
                and (track.home_id = wanted.id or track.is_closed)
            )
            order by names.number
            limit pg_catalog.int4larger(0, wanted.width - 1 - wanted.open)
        ) as free
    ),
    homes as materialized (
        select pg_catalog.jsonb_object_agg(chosen.name, chosen.home_id) as ids from chosen
    ),
    made as (
        insert into "graphile_worker"._private_job_queues as queue (queue_name, locked_by, locked_at)
        select
            chosen.name,
            case when chosen.is_held then 'py:hold' end,
            case when chosen.is_held then '9999-01-01 00:00:00+00'::timestamptz end
        from chosen
        order by chosen.name
        on conflict on constraint job_queues_queue_name_key do update set
            locked_by = coalesce(excluded.locked_by, queue.locked_by),
            locked_at = coalesce(excluded.locked_at, queue.locked_at)
        returning queue.id, queue.queue_name
    ),
    known as (
        insert into "graphile_worker"._private_py_tracks as track (queue_id, home_id)
        select made.id, ((select homes.ids from homes) ->> made.queue_name)::integer
        from made
        on conflict on constraint _private_py_tracks_pkey do update set home_id = excluded.home_id, is_closed = false
        returning track.queue_id, track.home_id
    ),
    held as (
        insert into "graphile_worker"._private_py_queue_holds as hold (queue_id, until, reason, held_at)
        select known.queue_id, of_home.until, of_home.reason, of_home.held_at
        from known
        cross join lateral (
            select hold.until, hold.reason, hold.held_at
            from "graphile_worker"._private_py_queue_holds as hold
            where hold.queue_id = known.home_id and hold.job_id is null
            limit 1
        ) as of_home
        on conflict on constraint _private_py_queue_holds_pkey do nothing
    )
    select count(*) into v_made from known;

    -- Too many: close some, free ones first. Every runtime leaves the row of a closed track alone, and its jobs go back to
    -- the home; the job that runs there comes back to it by a fetch.
    v_closing := array(
        select surplus.id
        from unnest(v_homes, v_widths) as wanted (id, width)
        cross join lateral (
            select track.queue_id as id
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = wanted.id and not track.is_closed
            order by
                (
                    select queue.locked_at
                    from "graphile_worker"._private_job_queues as queue
                    where queue.id = track.queue_id
                ) nulls last,
                track.queue_id
            offset wanted.width - 1
        ) as surplus
    );
    if v_closing <> '{}'::integer[] then
        perform queue.id
        from "graphile_worker"._private_job_queues as queue
        where queue.id = any(v_closing)
        order by queue.id
        for update;
        update "graphile_worker"._private_job_queues as queue
        set locked_by = 'py:hold', locked_at = '9999-01-01 00:00:00+00'
        where queue.id = any(v_closing);
        update "graphile_worker"._private_py_tracks as track
        set is_closed = true
        where track.queue_id = any(v_closing);
        delete from "graphile_worker"._private_py_queue_holds as hold where hold.queue_id = any(v_closing);
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
        update "graphile_worker"._private_jobs as job
        set job_queue_id = track.home_id
        from "graphile_worker"._private_py_tracks as track
        where track.queue_id = any(v_closing) and job.job_queue_id = track.queue_id and job.locked_at is null;
    end if;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    if v_made > 0 then
        perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || v_made::text || '}');
    end if;
    perform pg_notify('worker:py', '{"widths":1}');
    return v_made + coalesce(pg_catalog.cardinality(v_closing), 0)::bigint;
end;
$body$;

insert into "graphile_worker"._private_py_migrations (id, name)
values (15, 'tracks')
on conflict (id) do nothing;

-- For tasks with a handler for permanent failures: which failures it was told of, so that it can be told of those that
-- other runtimes write, or people by hand. Empty without such tasks.

-- Tasks with a handler. Failures before `since` are not told.
create table if not exists "graphile_worker"._private_py_failure_handlers (
    task text not null, -- identifier of the task that fails
    since timestamptz not null default now(),
    checked_at timestamptz not null default now(),
    constraint _private_py_failure_handlers_pkey primary key (task)
);

-- Permanently failed jobs of these tasks whose failure was told.
create table if not exists "graphile_worker"._private_py_told_failures (
    job_id bigint not null,
    failed_at double precision not null, -- in seconds since 1970
    constraint _private_py_told_failures_pkey primary key (job_id)
);

alter table "graphile_worker"._private_py_failure_handlers enable row level security;
alter table "graphile_worker"._private_py_told_failures enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (16, 'failure_handlers')
on conflict (id) do nothing;

-- What the dashboard keeps: who did what, jobs as they were before, and changes to many jobs that are under way. Empty
-- for those who do not use it, and no worker reads or writes any of it, except to delete what is old.

-- One row for each change that was made through the dashboard, its API or the command line.
create table if not exists "graphile_worker"._private_py_audit (
    id bigint not null generated always as identity,
    at timestamptz not null default now(),
    who text not null,
    how text not null, -- how they signed in: password, token, header, command line, ...
    origin text not null, -- an address, or the host of a command
    action text not null, -- retry, delete, pause_queue, sign_in_failed, ...
    target text not null, -- what it was about, in words
    jobs bigint not null default 0, -- how many jobs it changed
    job_ids bigint[] not null, -- of an action on a few jobs
    details json not null, -- the values that were given
    operation_id bigint,
    undone_by bigint, -- the row of the undo
    constraint _private_py_audit_pkey primary key (id)
);

create index if not exists _private_py_audit_at_index on "graphile_worker"._private_py_audit (at);
create index if not exists _private_py_audit_who_index on "graphile_worker"._private_py_audit (who, id);
create index if not exists _private_py_audit_action_index on "graphile_worker"._private_py_audit (action, id);
create index if not exists _private_py_audit_jobs_index on "graphile_worker"._private_py_audit using gin (job_ids);

-- Jobs as they were before a change, for 24 hours.
create table if not exists "graphile_worker"._private_py_before (
    audit_id bigint not null,
    job_id bigint not null,
    at timestamptz not null default now(),
    task text not null,
    queue_name text,
    job json, -- the row; null if the action added the job
    changed_to text, -- the version of the row that the change left (xmin); null if it deleted the job
    constraint _private_py_before_pkey primary key (audit_id, job_id)
);

create index if not exists _private_py_before_at_index on "graphile_worker"._private_py_before (at);
create index if not exists _private_py_before_job_index on "graphile_worker"._private_py_before (job_id);

-- Changes to all jobs that match a filter, in steps. Each step and its progress are one transaction, which holds the lock
-- of the row: so no job is changed twice, and no two dashboards carry out the same operation.
create table if not exists "graphile_worker"._private_py_operations (
    id bigint not null generated always as identity,
    audit_id bigint not null,
    action text not null,
    arguments json not null, -- of the action
    chosen json not null, -- which jobs
    target text not null, -- the same in words
    rate double precision, -- jobs per second at most
    state text not null default 'running', -- running, stopping, stopped, done or failed
    stage text not null, -- all; of a careful retry: canary, watching, rest, settling
    expected bigint not null, -- how many jobs, as counted before the start
    expected_kind text not null, -- exact, estimate or at_least
    up_to bigint not null, -- the highest id when it began
    last_id bigint not null default 0, -- how far it has come
    last_at timestamptz, -- the same for the jobs of an error group
    changed bigint not null default 0,
    skipped bigint not null default 0,
    succeeded bigint not null default 0, -- of a careful retry: jobs that are gone since
    watched bigint[] not null default '{}', -- of a careful retry: jobs whose outcome is not known yet
    kept bigint not null default 0, -- rows of _private_py_before
    note text, -- why it has stopped or failed
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    finished_at timestamptz,
    runner text, -- the dashboard process that carries it out
    lease_until timestamptz,
    constraint _private_py_operations_pkey primary key (id)
);

create index if not exists _private_py_operations_active_index
on "graphile_worker"._private_py_operations (id) where finished_at is null;

-- Error groups that are not shown until they occur in another version of the application, or until a time.
create table if not exists "graphile_worker"._private_py_muted_errors (
    fingerprint text not null,
    version text, -- the last one that had it
    until timestamptz,
    who text not null,
    reason text not null,
    at timestamptz not null default now(),
    constraint _private_py_muted_errors_pkey primary key (fingerprint)
);

alter table "graphile_worker"._private_py_audit enable row level security;
alter table "graphile_worker"._private_py_before enable row level security;
alter table "graphile_worker"._private_py_operations enable row level security;
alter table "graphile_worker"._private_py_muted_errors enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (17, 'admin')
on conflict (id) do nothing;

-- The recurring jobs that workers have, what became of their runs, and pauses of single ones. Workers write the first
-- table when they start; the second one in the statement that adds a recurring job.

-- One row for each crontab item of each worker pool. Rows of pools that are gone do not count; the next worker that
-- starts deletes them.
create table if not exists "graphile_worker"._private_py_schedules (
    pool_id text not null,
    identifier text not null, -- as in _private_known_crontabs
    position integer not null, -- in the worker's crontab
    task text not null,
    pattern text, -- null for a function
    zone text, -- name of the time zone; null for UTC
    payload json, -- without _cron
    options jsonb not null, -- of the jobs: queue_name, job_key, ...; and backfill_period in seconds
    source text, -- file and line
    constraint _private_py_schedules_pkey primary key (identifier, pool_id)
);

-- The last runs of each recurring job, the latest first: the two arrays have one element for each.
create table if not exists "graphile_worker"._private_py_schedule_runs (
    identifier text not null,
    job_ids bigint[] not null,
    due_at timestamptz[] not null,
    constraint _private_py_schedule_runs_pkey primary key (identifier)
);

-- Recurring jobs that Python workers do not add. Node and Rust do not read it.
create table if not exists "graphile_worker"._private_py_schedule_pauses (
    identifier text not null,
    until timestamptz, -- null for no end
    reason text,
    paused_at timestamptz not null default now(),
    constraint _private_py_schedule_pauses_pkey primary key (identifier)
);

alter table "graphile_worker"._private_py_schedules enable row level security;
alter table "graphile_worker"._private_py_schedule_runs enable row level security;
alter table "graphile_worker"._private_py_schedule_pauses enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (18, 'schedules')
on conflict (id) do nothing;

-- What operators ask of one worker pool, more about each pool, and when versions of the application were started.

alter table "graphile_worker"._private_py_workers
add column if not exists app_version text, -- of the application, as the worker was told
add column if not exists lanes jsonb, -- [{"name": ..., "slots": ..., "tasks": [...]}, ...]
add column if not exists state jsonb; -- {"is_listening": ..., "clock": seconds ahead of the server}; written when it changes

-- Requests to worker pools. A pool learns of them as it does of pauses. Rows of pools that are gone do not count.
create table if not exists "graphile_worker"._private_py_requests (
    id bigint not null generated always as identity,
    pool_id text not null,
    kind text not null, -- stop: shut down; quiet: fetch no more jobs, while the row exists; stack: where is this job
    job_id bigint, -- for a stack
    reason text,
    asked_at timestamptz not null default now(),
    answer jsonb, -- of a stack
    constraint _private_py_requests_pkey primary key (id),
    constraint _private_py_requests_kind_check check (kind in ('stop', 'quiet', 'stack'))
);

-- When a version of the application was deployed: its first worker started. Only the latest rows are kept.
create table if not exists "graphile_worker"._private_py_deploys (
    id bigint not null generated always as identity,
    version text not null,
    started_at timestamptz not null default now(),
    last_started_at timestamptz not null default now(),
    starts integer not null default 1,
    constraint _private_py_deploys_pkey primary key (id)
);

alter table "graphile_worker"._private_py_requests enable row level security;
alter table "graphile_worker"._private_py_deploys enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (19, 'requests')
on conflict (id) do nothing;

-- What workers say about their tasks, and which flags each pool forbids. Written when a worker starts.

-- One row for each task that has something to say, as the worker that started last has it.
create table if not exists "graphile_worker"._private_py_task_descriptions (
    identifier text not null,
    runbook text, -- address of a page that says what to do when its jobs fail
    owner text, -- person or team
    payload_type text, -- the annotation, as text; null for any JSON
    payload_schema json, -- JSON Schema of the payload; null if it cannot be expressed, or is long
    described_at timestamptz not null default now(),
    constraint _private_py_task_descriptions_pkey primary key (identifier)
);

alter table "graphile_worker"._private_py_task_descriptions enable row level security;

alter table "graphile_worker"._private_py_workers
add column if not exists forbidden_flags text[]; -- null if they may change, or if the pool does not say

insert into "graphile_worker"._private_py_migrations (id, name)
values (20, 'task_descriptions')
on conflict (id) do nothing;

-- Figures by day, so that a question about months reads a row for each day instead of 24.

-- The sum of the hours of a day of UTC, for each task. A day is folded some hours after it has ended.
create table if not exists "graphile_worker"._private_py_days (
    day timestamptz not null,
    task text not null,
    completed bigint not null,
    failed bigint not null,
    permanently_failed bigint not null,
    run_seconds double precision not null,
    wait_seconds double precision not null,
    longest double precision not null,
    run_times bigint[] not null,
    wait_times bigint[] not null,
    constraint _private_py_days_pkey primary key (day, task)
);

alter table "graphile_worker"._private_py_days enable row level security;

insert into "graphile_worker"._private_py_migrations (id, name)
values (21, 'days')
on conflict (id) do nothing;

-- What an autoscaler asks: how many jobs are ready, and how long the oldest one has waited. Both functions run with the
-- rights of their owner, so a role needs nothing but the right to execute them, which has to be granted.

-- Ready jobs, at most `at_most`; with `for_tasks`, those of these tasks among the first 50,000 of each priority. It reads
-- the index of the fetch, priority by priority (at most 100), and touches no job of the future.
create or replace function "graphile_worker"._private_py_ready_jobs(
    at_most integer default 1000, for_tasks text[] default null
)
returns integer
language sql
stable
security definer
set search_path to ''
as $body$
with recursive first_of_priority as (
    (
        select jobs.priority, 1 as step
        from "graphile_worker"._private_jobs as jobs
        where jobs.is_available = true
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.priority, first_of_priority.step + 1
    from first_of_priority
    cross join lateral (
        select jobs.priority
        from "graphile_worker"._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority > first_of_priority.priority
        order by jobs.priority, jobs.run_at
        limit 1
    ) as following
    where first_of_priority.step < 100
),
wanted as (
    select array(
        select tasks.id
        from "graphile_worker"._private_tasks as tasks
        where tasks.identifier = any (for_tasks)
    ) as task_ids
),
ready as (
    select 1 as one
    from first_of_priority
    cross join lateral (
        select jobs.task_id
        from "graphile_worker"._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority = first_of_priority.priority
        and jobs.run_at <= now()
        order by jobs.run_at
        limit case when for_tasks is null then greatest(at_most, 0) else 50000 end
    ) as job
    where for_tasks is null or job.task_id = any ((select wanted.task_ids from wanted)::integer[])
    limit greatest(at_most, 0)
)
select count(*)::integer from ready
$body$;

-- Seconds for which the oldest ready job has waited; 0 if none is ready.
create or replace function "graphile_worker"._private_py_oldest_ready_age()
returns double precision
language sql
stable
security definer
set search_path to ''
as $body$
with recursive first_of_priority as (
    (
        select jobs.id, jobs.priority, jobs.run_at, 1 as step
        from "graphile_worker"._private_jobs as jobs
        where jobs.is_available = true
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.id, following.priority, following.run_at, first_of_priority.step + 1
    from first_of_priority
    cross join lateral (
        select jobs.id, jobs.priority, jobs.run_at
        from "graphile_worker"._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority > first_of_priority.priority
        order by jobs.priority, jobs.run_at
        limit 1
    ) as following
    where first_of_priority.step < 100
)
select coalesce(
    greatest(
        date_part('epoch', now()) - date_part('epoch', min(greatest(jobs.run_at, jobs.created_at))),
        0::double precision
    ),
    0::double precision
)
from first_of_priority
join "graphile_worker"._private_jobs as jobs on jobs.id = first_of_priority.id
where first_of_priority.run_at <= now()
$body$;

revoke execute on function "graphile_worker"._private_py_ready_jobs(integer, text[]) from public;
revoke execute on function "graphile_worker"._private_py_oldest_ready_age() from public;

insert into "graphile_worker"._private_py_migrations (id, name)
values (22, 'monitoring')
on conflict (id) do nothing;

-- Functions that earlier versions of this package installed with a fault. The text of 0010 stays as it was, so that every
-- database gets the mended function by this number. Shared functions are replaced here, too: see migrate/own_functions.py.

-- Drops the partitions whose last day is before `day`, and returns their number. The lock on the parent waits for
-- statements that run, and holds up those that come later, so the caller sets a short lock_timeout.
create or replace function "graphile_worker"._private_py_drop_partitions(parent regclass, day date)
returns integer
language plpgsql
set search_path = pg_catalog
as $body$
declare
    partition record;
    dropped integer := 0;
begin
    for partition in
        select namespace.nspname as schema_name, class.relname as name
        from pg_inherits as inheritance
        join pg_class as class on class.oid = inheritance.inhrelid
        join pg_namespace as namespace on namespace.oid = class.relnamespace
        where inheritance.inhparent = parent
            and class.relname ~ '_[0-9]{8}$'
            -- As texts: the planner may look at other tables first, whose digits are no date.
            and right(class.relname, 8) < to_char(day, 'YYYYMMDD')
        order by class.relname
    loop
        execute pg_catalog.format('drop table %I.%I', partition.schema_name, partition.name);
        dropped := dropped + 1;
    end loop;
    return dropped;
end;
$body$;

insert into "graphile_worker"._private_py_migrations (id, name)
values (23, 'mended_functions')
on conflict (id) do nothing;

-- When a worker pool was last declared dead. A job that kills its process may leave no trace on its row, so workers hold
-- no batches for a while after a death: see recovery/look_for_deaths.

-- Always one row: a role that sees none knows that it may not read the table.
create table if not exists "graphile_worker"._private_py_last_death (
    is_only boolean not null default true,
    died_at timestamptz not null,
    constraint _private_py_last_death_pkey primary key (is_only),
    constraint _private_py_last_death_is_only_check check (is_only)
);

alter table "graphile_worker"._private_py_last_death enable row level security;

insert into "graphile_worker"._private_py_last_death (died_at)
values ('-infinity')
on conflict (is_only) do nothing;

-- A trigger, so that sweeps of earlier versions and of roles without rights on the table are noted too.
create or replace function "graphile_worker"._private_py_note_death()
returns trigger
language plpgsql
security definer
set search_path to ''
as $body$
begin
    insert into "graphile_worker"._private_py_last_death as death (died_at)
    values (now())
    on conflict (is_only) do update set died_at = excluded.died_at;
    return null;
end;
$body$;

drop trigger if exists _private_py_note_death on "graphile_worker"._private_py_workers;

-- Only a sweep deletes a pool that was unreachable for its whole grace; a pool that shuts down is not.
create trigger _private_py_note_death
after delete on "graphile_worker"._private_py_workers
for each row
when (old.lost_at <= now() - old.grace)
execute function "graphile_worker"._private_py_note_death();

insert into "graphile_worker"._private_py_migrations (id, name)
values (24, 'last_death')
on conflict (id) do nothing;

commit;
