-- Whether the Rust port's table of workers exists, and whether this role may use it.
--
-- $1 text  name of the schema
-- Returns may_use; null if the table does not exist.
select
  pg_catalog.has_table_privilege(class.oid, 'select'::text)
  and pg_catalog.has_table_privilege(class.oid, 'insert'::text)
  and pg_catalog.has_table_privilege(class.oid, 'update'::text)
  and pg_catalog.has_table_privilege(class.oid, 'delete'::text) as may_use
from pg_catalog.pg_class class
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
where namespace.nspname = $1::text and class.relname = '_private_workers'
