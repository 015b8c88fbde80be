-- What worker pools of this package say about themselves and their tasks. Other runtimes use none of these tables.

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

-- These columns came later, in this order.
alter table :GRAPHILE_WORKER_SCHEMA._private_py_workers
-- What it holds and runs, reported with its heartbeat: listing workers needs no scan of the jobs table, and no index over
-- locked jobs, which would cost every plain job.
add column if not exists jobs_held integer, -- jobs locked, running or prefetched; null if the pool does not report
add column if not exists running jsonb, -- [[job id, start in seconds since 1970], ...], the longest-running first
-- What blocks its event loop, reported by its heartbeat thread, which a blocked loop does not stop.
add column if not exists blocked jsonb, -- {"task": ..., "job": ..., "since": seconds since 1970}; null while the loop runs
add column if not exists app_version text, -- of the application, as the worker was told
add column if not exists lanes jsonb, -- [{"name": ..., "slots": ..., "tasks": [...]}, ...]
add column if not exists state jsonb, -- {"is_listening": ..., "clock": ...}, written when it changes; "load": with each heartbeat
add column if not exists forbidden_flags text[], -- of pools before flag_rules
add column if not exists flag_rules jsonb; -- which jobs it takes by their flags: FlagDescription; null if it does not say

-- When a version of the application was deployed: its first worker started. Only the latest rows are kept.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_deploys (
    id bigint not null generated always as identity,
    version text not null,
    started_at timestamptz not null default now(),
    last_started_at timestamptz not null default now(),
    starts integer not null default 1,
    constraint _private_py_deploys_pkey primary key (id)
);

-- One row for each task that has something to say, as the worker that started last has it. Written when a worker starts.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions (
    identifier text not null,
    runbook text, -- address of a page that says what to do when its jobs fail
    owner text, -- person or team
    payload_type text, -- the annotation, as text; null for any JSON
    payload_schema json, -- JSON Schema of the payload; null if it cannot be expressed, or is long
    described_at timestamptz not null default now(),
    constraint _private_py_task_descriptions_pkey primary key (identifier)
);

-- For tasks with a handler for permanent failures: which failures it was told of, so that it can be told of those that
-- other runtimes write, or people by hand. Empty without such tasks.

-- Tasks with a handler. Failures before `since` are not told.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_failure_handlers (
    task text not null, -- identifier of the task that fails
    since timestamptz not null default now(),
    checked_at timestamptz not null default now(),
    constraint _private_py_failure_handlers_pkey primary key (task)
);

-- Permanently failed jobs of these tasks whose failure was told.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_told_failures (
    job_id bigint not null,
    failed_at double precision not null, -- in seconds since 1970
    constraint _private_py_told_failures_pkey primary key (job_id)
);
