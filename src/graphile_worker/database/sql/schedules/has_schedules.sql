-- Whether this role may read the tables for recurring jobs, if they exist.
--
-- $1 text  the quoted name of the schema
select coalesce(
  pg_catalog.has_table_privilege(
    pg_catalog.to_regclass($1::text || '._private_py_schedules'), 'select'
  )
  and pg_catalog.has_table_privilege(
    pg_catalog.to_regclass($1::text || '._private_py_schedule_pauses'), 'select'
  )
  and pg_catalog.has_table_privilege(
    pg_catalog.to_regclass($1::text || '._private_py_schedule_runs'), 'select'
  )
  and pg_catalog.has_table_privilege(
    pg_catalog.to_regclass($1::text || '._private_py_workers'), 'select'
  ),
  false
) as has_schedules
