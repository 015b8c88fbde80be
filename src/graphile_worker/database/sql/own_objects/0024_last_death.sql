-- When a worker pool was last declared dead. A job that kills its process may leave no trace on its row, so workers hold
-- no batches for a while after a death: see recovery/look_for_deaths.

-- Always one row: a role that sees none knows that it may not read the table.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_last_death (
    is_only boolean not null default true,
    died_at timestamptz not null,
    constraint _private_py_last_death_pkey primary key (is_only),
    constraint _private_py_last_death_is_only_check check (is_only)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_last_death enable row level security;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_last_death (died_at)
values ('-infinity')
on conflict (is_only) do nothing;

-- A trigger, so that sweeps of earlier versions and of roles without rights on the table are noted too.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_note_death()
returns trigger
language plpgsql
security definer
set search_path to ''
as $body$
begin
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_last_death as death (died_at)
    values (now())
    on conflict (is_only) do update set died_at = excluded.died_at;
    return null;
end;
$body$;

drop trigger if exists _private_py_note_death on :GRAPHILE_WORKER_SCHEMA._private_py_workers;

-- Only a sweep deletes a pool that was unreachable for its whole grace; a pool that shuts down is not.
create trigger _private_py_note_death
after delete on :GRAPHILE_WORKER_SCHEMA._private_py_workers
for each row
when (old.lost_at <= now() - old.grace)
execute function :GRAPHILE_WORKER_SCHEMA._private_py_note_death();

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (24, 'last_death')
on conflict (id) do nothing;
