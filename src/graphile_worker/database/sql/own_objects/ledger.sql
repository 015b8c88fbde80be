-- Run after the other files: protects all tables of this package, and records the numbers in their ledger, which is separate
-- from the shared one. Other runtimes do not use it.

create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_migrations (
    id integer not null,
    name text not null,
    applied_at timestamptz not null default now(),
    constraint _private_py_migrations_pkey primary key (id)
);

-- Only tables that lack row-level security: the statement waits for all who use the table, and holds up those who come later.
do $body$
declare
    unprotected regclass;
begin
    for unprotected in
        select class.oid::regclass
        from pg_catalog.pg_class as class
        where class.relnamespace = $inner_body$:GRAPHILE_WORKER_SCHEMA$inner_body$::regnamespace::oid
        and pg_catalog.starts_with(class.relname::text, '_private_py_'::text)
        and class.relkind in ('r', 'p') and not class.relrowsecurity
    loop
        execute pg_catalog.format('alter table %s enable row level security', unprotected);
    end loop;
end;
$body$;

-- Which numbers belong to which file: see database/migrations/own_objects.py. The names are those of the changes.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values
    (1, 'ledger'),
    (2, 'queue_indexes'),
    (3, 'workers'),
    (4, 'add_plain_job'),
    (5, 'failed_index'),
    (6, 'functions'),
    (7, 'running_jobs'),
    (8, 'blocked_loop'),
    (9, 'figures'),
    (10, 'history'),
    (11, 'progress'),
    (12, 'control'),
    (13, 'limits'),
    (14, 'unique_jobs'),
    (15, 'tracks'),
    (16, 'failure_handlers'),
    (17, 'admin'),
    (18, 'schedules'),
    (19, 'requests'),
    (20, 'task_descriptions'),
    (21, 'days'),
    (22, 'monitoring'),
    (23, 'mended_functions'),
    (24, 'last_death'),
    (25, 'safe_operators'),
    (26, 'rust_register'),
    (27, 'keyed_index'),
    (28, 'safe_settings'),
    (29, 'concurrency_requests'),
    (30, 'flag_rules'),
    (31, 'limits_by_fetch'),
    (32, 'held_limits')
on conflict (id) do nothing;
