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

-- How far running jobs are, as their tasks report it. Unlogged: worthless after a crash, because no job runs then.
create unlogged table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_progress (
    job_id bigint not null,
    share double precision, -- from 0 to 1
    note text,
    data json,
    updated_at timestamptz not null default now(),
    constraint _private_py_progress_pkey primary key (job_id)
) with (fillfactor = 50);
