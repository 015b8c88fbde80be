-- Whether the table of days exists, and whether this role may fold hours into it.
--
-- $1 text  name of the schema
select coalesce(
  has_table_privilege(wanted.days::oid, 'select'::text)
  and has_table_privilege(wanted.days::oid, 'insert'::text)
  and has_table_privilege(wanted.days::oid, 'update'::text)
  and has_table_privilege(wanted.days::oid, 'delete'::text),
  false
)
from (select to_regclass(pg_catalog.format('%I._private_py_days', $1::text)) as days) as wanted
