-- Whether the tables of the dashboard exist, and whether this role may write to them. Without a policy, row security
-- lets only the owner see and add rows.
-- $1 the name of the audit table with its schema, quoted.
-- Returns one row: has_tables, may_read, may_write.
select
    found.id is not null as has_tables,
    coalesce(pg_catalog.has_table_privilege(found.id, 'select'), false) as may_read,
    coalesce(pg_catalog.has_table_privilege(found.id, 'insert'), false)
        and not coalesce(pg_catalog.row_security_active(found.id), false) as may_write
from (select pg_catalog.to_regclass($1::text)::oid as id) as found
