-- Functions that earlier versions of this package installed with a fault. The text of 0010 stays as it was, so that every
-- database gets the mended function by this number. Shared functions are replaced here, too: see database/migrations/own_functions.py.

-- Drops the partitions whose last day is before `day`, and returns their number. The lock on the parent waits for
-- statements that run, and holds up those that come later, so the caller sets a short lock_timeout.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_drop_partitions(parent regclass, day date)
returns integer
language plpgsql
set search_path = pg_catalog
as $body$
declare
    partition record;
    dropped integer := 0;
begin
    for partition in
        select namespace.nspname as schema_name, class.relname as name
        from pg_inherits as inheritance
        join pg_class as class on class.oid = inheritance.inhrelid
        join pg_namespace as namespace on namespace.oid = class.relnamespace
        where inheritance.inhparent = parent
            and class.relname ~ '_[0-9]{8}$'
            -- As texts: the planner may look at other tables first, whose digits are no date.
            and right(class.relname, 8) < to_char(day, 'YYYYMMDD')
        order by class.relname
    loop
        execute pg_catalog.format('drop table %I.%I', partition.schema_name, partition.name);
        dropped := dropped + 1;
    end loop;
    return dropped;
end;
$body$;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (23, 'mended_functions')
on conflict (id) do nothing;
