-- The ledger of the Python-only objects, separate from the shared one. Other runtimes do not use it.

create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_migrations (
    id integer not null,
    name text not null,
    applied_at timestamptz not null default now(),
    constraint _private_py_migrations_pkey primary key (id)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_migrations enable row level security;

-- Every file ends by recording itself.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (1, 'ledger')
on conflict (id) do nothing;
