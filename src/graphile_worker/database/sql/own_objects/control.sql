-- What operators ask of workers: pauses of tasks, holds of queues, jobs to cancel, and requests to one pool. Empty for those who ask for
-- nothing. A change is announced on the channel worker:py; workers also look every few seconds.

-- Tasks whose jobs Python workers do not start. Node and Rust do not read it.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_pauses (
    task text not null, -- identifier; empty for every task
    until timestamptz, -- null for no end
    reason text,
    paused_at timestamptz not null default now(),
    constraint _private_py_pauses_pkey primary key (task)
);

-- Named queues that no runtime takes a job from. Their rows in _private_job_queues are locked by py:hold.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds (
    queue_id integer not null,
    until timestamptz, -- null for no end
    reason text,
    held_at timestamptz not null default now(),
    holder text, -- the pool that had the queue locked when it was paused
    job_id bigint, -- the queue was resumed while this job of the holder was running
    constraint _private_py_queue_holds_pkey primary key (queue_id)
);

-- Jobs that were cancelled while a worker had them locked. The row goes with the job.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_cancels (
    job_id bigint not null,
    reason text,
    asked_at timestamptz not null default now(),
    constraint _private_py_cancels_pkey primary key (job_id)
);

-- Requests to worker pools. A pool learns of them as it does of pauses. Rows of pools that are gone do not count.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_requests (
    id bigint not null generated always as identity,
    pool_id text not null,
    kind text not null, -- stop: shut down; quiet: fetch no more jobs, while the row exists; stack: where is this job;
    -- concurrency: run so many jobs at once
    job_id bigint, -- for a stack
    reason text,
    asked_at timestamptz not null default now(),
    answer jsonb, -- of a stack and a concurrency
    constraint _private_py_requests_pkey primary key (id)
);

-- These columns came later, and so did the last kind.
alter table :GRAPHILE_WORKER_SCHEMA._private_py_requests
add column if not exists lane text, -- for a concurrency
add column if not exists concurrency integer,
drop constraint if exists _private_py_requests_kind_check,
add constraint _private_py_requests_kind_check check (kind in ('stop', 'quiet', 'stack', 'concurrency'));
