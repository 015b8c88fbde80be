-- Functions for the partitions of the history, one for each day.

-- Makes the partition for one day, and returns whether it was missing. Attaching a table, unlike
-- `create table ... partition of`, does not wait for writers.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_add_partition(parent regclass, day date)
returns boolean
language plpgsql
set search_path to pg_catalog, pg_temp
as $body$
declare
    schema_name text;
    partition text;
begin
    select namespace.nspname, class.relname || to_char(day, '_YYYYMMDD')
    into schema_name, partition
    from pg_class as class join pg_namespace as namespace on namespace.oid = class.relnamespace
    where class.oid = parent;
    if to_regclass(pg_catalog.format('%I.%I', schema_name, partition)) is not null then
        return false;
    end if;
    -- Workers that miss partitions at the same time make them one after the other. One lock for all partitions, taken
    -- before any on a table, so that they cannot wait for each other.
    perform pg_advisory_xact_lock(hashtext(schema_name || ' history'));
    -- A query, not to_regclass, which may still remember that there was none.
    if exists (
        select from pg_class as class join pg_namespace as namespace on namespace.oid = class.relnamespace
        where namespace.nspname = schema_name and class.relname = partition
    ) then
        return false;
    end if;
    execute pg_catalog.format('create table %I.%I (like %s including all)', schema_name, partition, parent);
    execute pg_catalog.format('alter table %I.%I enable row level security', schema_name, partition);
    execute pg_catalog.format(
        'alter table %s attach partition %I.%I for values from (%L) to (%L)',
        parent, schema_name, partition, day, day + 1
    );
    return true;
end;
$body$;

-- Drops the partitions whose last day is before `day`, and returns their number. The lock on the parent waits for
-- statements that run, and holds up those that come later, so the caller sets a short lock_timeout.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_drop_partitions(parent regclass, day date)
returns integer
language plpgsql
set search_path to pg_catalog, pg_temp
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
