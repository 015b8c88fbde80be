-- Whether a Rust worker has migrated this schema: only its functions raise GWNOR.
--
-- $1 text  name of the schema
select exists (
  select from pg_catalog.pg_proc proc
  join pg_catalog.pg_namespace namespace on namespace.oid = proc.pronamespace
  where namespace.nspname = $1::text and proc.proname = 'add_job' and strpos(proc.prosrc, 'GWNOR') > 0
)
