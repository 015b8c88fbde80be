-- What the dashboard keeps: who did what, jobs as they were before, and changes to many jobs that are under way. Empty
-- for those who do not use it, and no worker reads or writes any of it, except to delete what is old.

-- One row for each change that was made through the dashboard, its API or the command line.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_audit (
    id bigint not null generated always as identity,
    at timestamptz not null default now(),
    who text not null,
    how text not null, -- how they signed in: password, token, header, command line, ...
    origin text not null, -- an address, or the host of a command
    action text not null, -- retry, delete, pause_queue, sign_in_failed, ...
    target text not null, -- what it was about, in words
    jobs bigint not null default 0, -- how many jobs it changed
    job_ids bigint[] not null, -- of an action on a few jobs
    details json not null, -- the values that were given
    operation_id bigint,
    undone_by bigint, -- the row of the undo
    constraint _private_py_audit_pkey primary key (id)
);

create index if not exists _private_py_audit_at_index on :GRAPHILE_WORKER_SCHEMA._private_py_audit (at);
create index if not exists _private_py_audit_who_index on :GRAPHILE_WORKER_SCHEMA._private_py_audit (who, id);
create index if not exists _private_py_audit_action_index on :GRAPHILE_WORKER_SCHEMA._private_py_audit (action, id);
create index if not exists _private_py_audit_jobs_index on :GRAPHILE_WORKER_SCHEMA._private_py_audit using gin (job_ids);

-- Jobs as they were before a change, for 24 hours.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_before (
    audit_id bigint not null,
    job_id bigint not null,
    at timestamptz not null default now(),
    task text not null,
    queue_name text,
    job json, -- the row; null if the action added the job
    changed_to text, -- the version of the row that the change left (xmin); null if it deleted the job
    constraint _private_py_before_pkey primary key (audit_id, job_id)
);

create index if not exists _private_py_before_at_index on :GRAPHILE_WORKER_SCHEMA._private_py_before (at);
create index if not exists _private_py_before_job_index on :GRAPHILE_WORKER_SCHEMA._private_py_before (job_id);

-- Changes to all jobs that match a filter, in steps. Each step and its progress are one transaction, which holds the lock
-- of the row: so no job is changed twice, and no two dashboards carry out the same operation.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_operations (
    id bigint not null generated always as identity,
    audit_id bigint not null,
    action text not null,
    arguments json not null, -- of the action
    chosen json not null, -- which jobs
    target text not null, -- the same in words
    rate double precision, -- jobs per second at most
    state text not null default 'running', -- running, stopping, stopped, done or failed
    stage text not null, -- all; of a careful retry: canary, watching, rest, settling
    expected bigint not null, -- how many jobs, as counted before the start
    expected_kind text not null, -- exact, estimate or at_least
    up_to bigint not null, -- the highest id when it began
    last_id bigint not null default 0, -- how far it has come
    last_at timestamptz, -- the same for the jobs of an error group
    changed bigint not null default 0,
    skipped bigint not null default 0,
    succeeded bigint not null default 0, -- of a careful retry: jobs that are gone since
    watched bigint[] not null default '{}', -- of a careful retry: jobs whose outcome is not known yet
    kept bigint not null default 0, -- rows of _private_py_before
    note text, -- why it has stopped or failed
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    finished_at timestamptz,
    runner text, -- the dashboard process that carries it out
    lease_until timestamptz,
    constraint _private_py_operations_pkey primary key (id)
);

create index if not exists _private_py_operations_active_index
on :GRAPHILE_WORKER_SCHEMA._private_py_operations (id) where finished_at is null;

-- Error groups that are not shown until they occur in another version of the application, or until a time.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_muted_errors (
    fingerprint text not null,
    version text, -- the last one that had it
    until timestamptz,
    who text not null,
    reason text not null,
    at timestamptz not null default now(),
    constraint _private_py_muted_errors_pkey primary key (fingerprint)
);
