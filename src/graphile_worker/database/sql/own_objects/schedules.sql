-- The recurring jobs that workers have, what became of their runs, and pauses of single ones. Workers write the first
-- table when they start; the second one in the statement that adds a recurring job.

-- One row for each crontab item of each worker pool. Rows of pools that are gone do not count; the next worker that
-- starts deletes them.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_schedules (
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
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_schedule_runs (
    identifier text not null,
    job_ids bigint[] not null,
    due_at timestamptz[] not null,
    constraint _private_py_schedule_runs_pkey primary key (identifier)
);

-- Recurring jobs that Python workers do not add. Node and Rust do not read it.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses (
    identifier text not null,
    until timestamptz, -- null for no end
    reason text,
    paused_at timestamptz not null default now(),
    constraint _private_py_schedule_pauses_pkey primary key (identifier)
);
