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

alter table :GRAPHILE_WORKER_SCHEMA._private_py_failure_handlers enable row level security;
alter table :GRAPHILE_WORKER_SCHEMA._private_py_told_failures enable row level security;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (16, 'failure_handlers')
on conflict (id) do nothing;
