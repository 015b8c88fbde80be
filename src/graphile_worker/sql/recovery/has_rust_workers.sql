-- Whether the Rust port's table of workers exists.
--
-- $1 text  name of the schema
select exists (
  select from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where namespace.nspname = $1::text and class.relname = '_private_workers'
)
