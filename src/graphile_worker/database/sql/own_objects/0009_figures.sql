-- Figures of what workers of this package did, samples of the backlog, and which pool does the regular work on them.
-- Other runtimes use none of these tables.

-- One row for each minute, task and pool that ran jobs. After some minutes the rows of the pools are folded into one,
-- whose pool_id is empty. Histograms count by time: see history/statistics.py. They have no trailing zeros.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_minutes (
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
on :GRAPHILE_WORKER_SCHEMA._private_py_minutes (minute)
where pool_id <> '';

-- The sum of all folded minutes, for each hour and task.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_hours (
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
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_samples (
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
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_duties (
    name text not null,
    pool_id text not null,
    done_at timestamptz not null,
    constraint _private_py_duties_pkey primary key (name)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_minutes enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_hours enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_samples enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_duties enable row level security;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (9, 'figures')
on conflict (id) do nothing;
