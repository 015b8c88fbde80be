-- Figures by day, so that a question about months reads a row for each day instead of 24.

-- The sum of the hours of a day of UTC, for each task. A day is folded some hours after it has ended.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_days (
    day timestamptz not null,
    task text not null,
    completed bigint not null,
    failed bigint not null,
    permanently_failed bigint not null,
    run_seconds double precision not null,
    wait_seconds double precision not null,
    longest double precision not null,
    run_times bigint[] not null,
    wait_times bigint[] not null,
    constraint _private_py_days_pkey primary key (day, task)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_days enable row level security;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (21, 'days')
on conflict (id) do nothing;
