-- Registered worker pools, and recovery counters of jobs. Other runtimes use neither table.

-- One row for each worker pool of this package that is running, or dead and not swept yet.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_workers (
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
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_recoveries (
    job_id bigint not null,
    recoveries integer not null,
    last_at timestamptz not null default now(),
    started_by text, -- the pool that ran it last after a recovery: if it dies too, the job may be the cause
    constraint _private_py_recoveries_pkey primary key (job_id)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_workers enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_recoveries enable row level security;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (3, 'workers')
on conflict (id) do nothing;
