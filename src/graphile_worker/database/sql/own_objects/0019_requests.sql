-- What operators ask of one worker pool, more about each pool, and when versions of the application were started.

alter table :GRAPHILE_WORKER_SCHEMA._private_py_workers
add column if not exists app_version text, -- of the application, as the worker was told
add column if not exists lanes jsonb, -- [{"name": ..., "slots": ..., "tasks": [...]}, ...]
add column if not exists state jsonb; -- {"is_listening": ..., "clock": seconds ahead of the server}; written when it changes

-- Requests to worker pools. A pool learns of them as it does of pauses. Rows of pools that are gone do not count.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_requests (
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
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_deploys (
    id bigint not null generated always as identity,
    version text not null,
    started_at timestamptz not null default now(),
    last_started_at timestamptz not null default now(),
    starts integer not null default 1,
    constraint _private_py_deploys_pkey primary key (id)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_requests enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_deploys enable row level security;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (19, 'requests')
on conflict (id) do nothing;
