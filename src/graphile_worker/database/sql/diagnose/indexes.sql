-- The indexes of the schema, for the doctor.
-- $1 the schema's name (text).
-- Returns for each: name, table_name, is_valid.
select
    class.relname::text as name,
    pg_index.indrelid::regclass::text as table_name,
    pg_index.indisvalid and pg_index.indisready as is_valid
from pg_catalog.pg_index
join pg_catalog.pg_class as class on class.oid = pg_index.indexrelid
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = $1
order by class.relname
