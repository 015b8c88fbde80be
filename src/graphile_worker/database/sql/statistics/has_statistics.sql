-- Whether the tables with statistics exist.
--
-- $1 text  name of the schema
-- Returns has_statistics, and has_days: whether there is a table of days that this role may read.
select
  pg_catalog.bool_and(found.name is not null) filter (where found.position < 4) as has_statistics,
  pg_catalog.bool_and(coalesce(has_table_privilege(found.name::oid, 'select'::text), false))
    filter (where found.position = 4) as has_days
from (
  select to_regclass(pg_catalog.format('%I.%I', $1::text, wanted.name)) as name, wanted.position
  from (
    values
      ('_private_py_minutes'::text, 1), ('_private_py_hours', 2), ('_private_py_samples', 3), ('_private_py_days', 4)
  ) as wanted (name, position)
) as found
