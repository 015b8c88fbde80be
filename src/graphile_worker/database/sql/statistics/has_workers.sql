-- Whether the table of worker pools exists and may be read by this role.
--
-- $1 text  name of the schema
select coalesce(
  has_table_privilege(to_regclass(pg_catalog.format('%I._private_py_workers', $1::text))::oid, 'select'::text), false
)
