-- What tells the living from the dead: jobs whose worker died, the last death, and the register that Rust workers look at.

-- Jobs whose worker died, and how often. Rows of jobs that no longer exist are purged from time to time.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_recoveries (
    job_id bigint not null,
    recoveries integer not null,
    last_at timestamptz not null default now(),
    started_by text, -- the pool that ran it last after a recovery: if it dies too, the job may be the cause
    constraint _private_py_recoveries_pkey primary key (job_id)
);

-- When a worker pool was last declared dead. A job that kills its process may leave no trace on its row, so workers hold
-- no batches for a while after a death: see recovery/look_for_deaths. Always one row: a role that sees none knows that it
-- may not read the table.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_last_death (
    is_only boolean not null default true,
    died_at timestamptz not null,
    constraint _private_py_last_death_pkey primary key (is_only),
    constraint _private_py_last_death_is_only_check check (is_only)
);

insert into :GRAPHILE_WORKER_SCHEMA._private_py_last_death (died_at)
values ('-infinity')
on conflict (is_only) do nothing;

-- A trigger, so that sweeps of earlier versions and of roles without rights on the table are noted too.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_note_death()
returns trigger
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $body$
begin
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_last_death as death (died_at)
    values (now())
    on conflict (is_only) do update set died_at = excluded.died_at;
    return null;
end;
$body$;

-- Only a sweep deletes a pool that was unreachable for its whole grace; a pool that shuts down is not. A trigger that exists
-- is left alone: creating it waits for all who write to the table.
do $body$
begin
    if exists (
        select from pg_catalog.pg_trigger as existing
        where existing.tgname = '_private_py_note_death'::name
        and existing.tgrelid = $inner_body$:GRAPHILE_WORKER_SCHEMA._private_py_workers$inner_body$::regclass::oid
    ) then
        return;
    end if;
    create trigger _private_py_note_death
    after delete on :GRAPHILE_WORKER_SCHEMA._private_py_workers
    for each row
    when (old.lost_at <= now() - old.grace)
    execute function :GRAPHILE_WORKER_SCHEMA._private_py_note_death();
end;
$body$;

-- The register of workers that Rust workers keep, by the names that they use.
--
-- A Rust worker with recovery creates it when it starts, and some milliseconds later takes the jobs of every pool that has
-- no row in it. So it has to exist, with a row of each pool, before the first Rust worker comes. Rust's own migration adds
-- what is missing and replaces the functions. Where the table exists nothing is changed: Rust's functions may know more.
-- Only for a shared ledger at 20 or later, as here: from 19 Rust would install its 20, which expects no such table.
do $body$
begin
    begin
        perform from :GRAPHILE_WORKER_SCHEMA._private_workers limit 0;
        return;
    exception
        when insufficient_privilege then return;
        when undefined_table then null;
    end;

    -- Without row security: Rust workers may connect as another role.
    create table :GRAPHILE_WORKER_SCHEMA._private_workers (
        id text not null,
        last_heartbeat_at timestamptz not null,
        started_at timestamptz not null default pg_catalog.now(),
        metadata jsonb,
        constraint _private_workers_pkey primary key (id)
    );

    create index _private_workers_last_heartbeat_at_idx
    on :GRAPHILE_WORKER_SCHEMA._private_workers (last_heartbeat_at);

    create or replace function :GRAPHILE_WORKER_SCHEMA.worker_heartbeat(worker_id text, metadata json default null)
    returns void
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        insert into :GRAPHILE_WORKER_SCHEMA._private_workers as worker (id, last_heartbeat_at, metadata)
        values ($1, now(), $2::jsonb)
        on conflict (id) do update
        set last_heartbeat_at = excluded.last_heartbeat_at, metadata = coalesce(excluded.metadata, worker.metadata);
    $inner_body$;

    create or replace function :GRAPHILE_WORKER_SCHEMA.worker_deregister(worker_id text)
    returns void
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        delete from :GRAPHILE_WORKER_SCHEMA._private_workers as worker where worker.id = $1;
    $inner_body$;

    create or replace function :GRAPHILE_WORKER_SCHEMA.list_stale_workers(stale_threshold interval)
    returns table (worker_id text)
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        select worker.id
        from :GRAPHILE_WORKER_SCHEMA._private_workers as worker
        where worker.last_heartbeat_at < now() - $1;
    $inner_body$;

    create or replace function :GRAPHILE_WORKER_SCHEMA.list_orphan_locked_workers(stale_threshold interval)
    returns table (worker_id text)
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        select locks.locked_by
        from (
            select job.locked_by
            from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
            where job.locked_by is not null and job.locked_at < now() - $1
            union
            select queue.locked_by
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
            where queue.locked_by is not null and queue.locked_at < now() - $1
        ) as locks
        where not exists (
            select from :GRAPHILE_WORKER_SCHEMA._private_workers as worker where worker.id = locks.locked_by
        );
    $inner_body$;

    -- A job whose key was used again or removed while it was locked does not come back; see recovery/recover_jobs.
    create or replace function :GRAPHILE_WORKER_SCHEMA.recover_dead_worker_jobs(
        worker_ids text[], recovery_delay interval default '0'
    )
    returns integer
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        with
        recovered as (
            update :GRAPHILE_WORKER_SCHEMA._private_jobs as job
            set
                attempts = case
                    when job.key is null and job.attempts >= job.max_attempts
                        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
                    else greatest(0, job.attempts - 1)
                end,
                run_at = greatest(job.run_at, now() + $2),
                last_error = 'Job recovered after worker interruption',
                locked_by = null,
                locked_at = null,
                updated_at = now()
            where job.locked_by = any ($1)
            returning job.id
        ),
        freed as (
            update :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
            set locked_by = null, locked_at = null
            where queue.locked_by = any ($1)
        )
        select count(*)::integer from recovered;
    $inner_body$;

    create or replace function :GRAPHILE_WORKER_SCHEMA.delete_stale_workers(worker_ids text[])
    returns void
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        delete from :GRAPHILE_WORKER_SCHEMA._private_workers as worker where worker.id = any ($1);
    $inner_body$;
end;
$body$;
