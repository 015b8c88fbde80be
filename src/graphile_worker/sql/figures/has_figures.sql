-- Whether the tables with figures exist.
--
-- $1 text  name of the schema
select pg_catalog.bool_and(found.name is not null)
from (
  select to_regclass(pg_catalog.format('%I.%I', $1::text, wanted.name)) as name
  from (values ('_private_py_minutes'::text), ('_private_py_hours'), ('_private_py_samples')) as wanted (name)
) as found
