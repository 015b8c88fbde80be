-- How far running jobs are, as their tasks report it. Unlogged: worthless after a crash, because no job runs then.
create unlogged table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_progress (
    job_id bigint not null,
    share double precision, -- from 0 to 1
    note text,
    data json,
    updated_at timestamptz not null default now(),
    constraint _private_py_progress_pkey primary key (job_id)
) with (fillfactor = 50);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_progress enable row level security;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (11, 'progress')
on conflict (id) do nothing;
