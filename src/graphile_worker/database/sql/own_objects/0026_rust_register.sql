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

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (26, 'rust_register')
on conflict (id) do nothing;
