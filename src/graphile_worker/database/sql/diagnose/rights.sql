-- Permissions of the connected role on each table of the schema, for the doctor.
-- $1 the schema's name (text).
-- Returns for each table: name, owner, may_use (all four permissions), row_security (whether it hides rows from this
-- role), and in each row the permissions on the schema: may_enter (without it nothing else matters) and may_create.
select
    class.relname::text as name,
    pg_get_userbyid(class.relowner)::text as owner,
    has_schema_privilege(namespace.oid, 'usage') as may_enter,
    has_schema_privilege(namespace.oid, 'create') as may_create,
    has_table_privilege(class.oid, 'select')
        and has_table_privilege(class.oid, 'insert')
        and has_table_privilege(class.oid, 'update')
        and has_table_privilege(class.oid, 'delete') as may_use,
    row_security_active(class.oid) as row_security
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = $1 and class.relkind in ('r', 'p')
order by class.relname
