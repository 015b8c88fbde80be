-- The shared tables, type, indexes, row security and ledger as they stand at revision 20.
--
-- Runs in one transaction, before `000017_jobs_view` and the files in `functions/`. The schema exists already;
-- the ledger may exist too, left empty by another installer, and then only receives its rows.
-- Names, column order and the odd "1" in some names are part of the contract with the other runtimes.

create table if not exists :GRAPHILE_WORKER_SCHEMA.migrations (
    id integer not null,
    ts timestamptz not null default now(),
    breaking boolean not null default false,
    constraint migrations_pkey primary key (id)
);

-- First, because its primary key is the only lock that other runtimes' installers know.
insert into :GRAPHILE_WORKER_SCHEMA.migrations (id, breaking)
select revision, revision in (1, 3, 11, 13, 14, 16, 19)
from generate_series(1, 20) as revision;

create table :GRAPHILE_WORKER_SCHEMA._private_tasks (
    id integer not null generated always as identity (sequence name :GRAPHILE_WORKER_SCHEMA.tasks_id_seq),
    identifier text not null,
    constraint tasks_pkey primary key (id),
    constraint tasks_identifier_key unique (identifier),
    constraint tasks_identifier_check check (length(identifier) <= 128)
);

create table :GRAPHILE_WORKER_SCHEMA._private_job_queues (
    id integer not null generated always as identity (sequence name :GRAPHILE_WORKER_SCHEMA.job_queues_id_seq),
    queue_name text not null,
    locked_at timestamptz,
    locked_by text,
    is_available boolean not null generated always as (locked_at is null) stored,
    constraint job_queues_pkey1 primary key (id),
    constraint job_queues_queue_name_key unique (queue_name),
    constraint job_queues_queue_name_check check (length(queue_name) <= 128)
);

-- Neither job_queue_id nor task_id is a foreign key, on purpose: clean-up must not wait for running jobs.
create table :GRAPHILE_WORKER_SCHEMA._private_jobs (
    id bigint not null generated always as identity (sequence name :GRAPHILE_WORKER_SCHEMA.jobs_id_seq1),
    job_queue_id integer,
    task_id integer not null,
    payload json not null default '{}'::json,
    priority smallint not null default 0,
    run_at timestamptz not null default now(),
    attempts smallint not null default 0,
    max_attempts smallint not null default 25,
    last_error text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    key text,
    locked_at timestamptz,
    locked_by text,
    revision integer not null default 0,
    flags jsonb,
    is_available boolean not null generated always as (locked_at is null and attempts < max_attempts) stored,
    constraint jobs_pkey1 primary key (id),
    constraint jobs_key_key1 unique (key),
    constraint jobs_key_check check (length(key) > 0 and length(key) <= 512),
    constraint jobs_max_attempts_check check (max_attempts >= 1)
);

create index jobs_main_index on :GRAPHILE_WORKER_SCHEMA._private_jobs
    using btree (priority, run_at) include (id, task_id, job_queue_id)
    where is_available = true;

create index jobs_no_queue_index on :GRAPHILE_WORKER_SCHEMA._private_jobs
    using btree (priority, run_at) include (id, task_id)
    where is_available = true and job_queue_id is null;

create table :GRAPHILE_WORKER_SCHEMA._private_known_crontabs (
    identifier text not null,
    known_since timestamptz not null,
    last_execution timestamptz,
    constraint known_crontabs_pkey primary key (identifier)
);

-- No policies: only the owner (and superusers) reads and writes; others need a function that runs as the owner.
alter table :GRAPHILE_WORKER_SCHEMA._private_tasks enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_job_queues enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_jobs enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_known_crontabs enable row level security;

create type :GRAPHILE_WORKER_SCHEMA.job_spec as (
    identifier text,
    payload json,
    queue_name text,
    run_at timestamptz,
    max_attempts smallint,
    job_key text,
    priority smallint,
    flags text[]
);
