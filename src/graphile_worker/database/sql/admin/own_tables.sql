-- Which of the Python-only tables exist and may be read by this role.
--
-- $1 text  name of the schema
-- Returns name.
select class.relname::text as name
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = $1::text
and class.relname ~ '^_private_py_'::text
and class.relkind = any (array['r', 'p']::"char"[])
and not class.relispartition
and has_table_privilege(class.oid, 'select'::text)
