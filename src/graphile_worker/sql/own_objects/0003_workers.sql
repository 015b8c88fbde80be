-- Who is at work, and which jobs were taken from workers that died. Neither table is touched by the other runtimes.

-- One row for each worker pool of this package that runs, or that died and was not noticed yet.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_workers (
    id text not null, -- the pool's id, as it stands in locked_by
    host text not null,
    pid integer not null,
    version text not null,
    tasks text[] not null,
    concurrency integer not null,
    started_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    liveness text not null, -- how its life shows: by an advisory lock it holds, or by how fresh last_seen_at is
    backend_pid integer, -- of the session that holds the lock
    heartbeat_interval interval not null,
    grace interval not null, -- how long it may be out of reach before its jobs are given to others
    lost_at timestamptz, -- since when it is out of reach
    constraint _private_py_workers_pkey primary key (id),
    constraint _private_py_workers_liveness_check check (liveness in ('lock', 'heartbeat'))
);

-- Jobs whose worker died, and how often. Rows of jobs that are gone are deleted from time to time.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_recoveries (
    job_id bigint not null,
    recoveries integer not null,
    last_at timestamptz not null default now(),
    started_by text, -- the pool that ran it last after a recovery: if that one dies too, the job may be the reason
    constraint _private_py_recoveries_pkey primary key (job_id)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_workers enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_recoveries enable row level security;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (3, 'workers')
on conflict (id) do nothing;
