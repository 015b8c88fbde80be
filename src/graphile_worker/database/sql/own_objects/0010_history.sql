-- What became of jobs that are gone: ends of kept jobs, and the errors of every attempt. Other runtimes use neither.
--
-- Both tables are partitioned by the day on which their rows expire, whatever their retention: retention is dropping a
-- partition, which leaves no dead rows. Partitions are made ahead by sweeps, and by the write that misses one.

-- The names of tasks, which stay when `cleanup` deletes unused ones. A number keeps rows and their index small.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_task_names (
    id integer not null,
    identifier text not null,
    constraint _private_py_task_names_pkey primary key (id)
);

create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_history (
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
on :GRAPHILE_WORKER_SCHEMA._private_py_history (job_id);

create index if not exists _private_py_history_finished_index
on :GRAPHILE_WORKER_SCHEMA._private_py_history (finished_at);

create index if not exists _private_py_history_task_index
on :GRAPHILE_WORKER_SCHEMA._private_py_history (task_id, finished_at);

-- Most jobs complete, and pay nothing for these two.
create index if not exists _private_py_history_state_index
on :GRAPHILE_WORKER_SCHEMA._private_py_history (state, finished_at) where state <> 'completed';

create index if not exists _private_py_history_task_state_index
on :GRAPHILE_WORKER_SCHEMA._private_py_history (task_id, state, finished_at) where state <> 'completed';

create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_errors (
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
on :GRAPHILE_WORKER_SCHEMA._private_py_errors (job_id);

create index if not exists _private_py_errors_group_index
on :GRAPHILE_WORKER_SCHEMA._private_py_errors (fingerprint, failed_at);

create index if not exists _private_py_errors_failed_index
on :GRAPHILE_WORKER_SCHEMA._private_py_errors (failed_at);

-- One row for each fingerprint: what kind of error it is, how often it occurred and since when. Pools add what they have
-- counted every few seconds, so errors beyond the limit of those that are kept count too.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_error_groups (
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
on :GRAPHILE_WORKER_SCHEMA._private_py_error_groups (last_at);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_error_groups enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_task_names enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_history enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_errors enable row level security;

-- Makes the partition for one day, and returns whether it was missing. Attaching a table, unlike
-- `create table ... partition of`, does not wait for writers.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_add_partition(parent regclass, day date)
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
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_drop_partitions(parent regclass, day date)
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

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (10, 'history')
on conflict (id) do nothing;
