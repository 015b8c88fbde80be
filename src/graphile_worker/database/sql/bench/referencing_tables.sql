-- The tables of the schema with foreign keys to jobs and queues, such as one of the Rust port: truncate needs them, too.
--
-- $1 text  name of the schema
-- Returns their names, quoted.
select distinct pg_catalog.quote_ident(namespace.nspname::text) || '.' || pg_catalog.quote_ident(class.relname::text) as name
from pg_catalog.pg_constraint as foreign_key
join pg_catalog.pg_class as class on class.oid = foreign_key.conrelid
join pg_catalog.pg_class as target on target.oid = foreign_key.confrelid
join pg_catalog.pg_namespace as namespace
  on namespace.oid = class.relnamespace and namespace.oid = target.relnamespace
where foreign_key.contype = 'f' and namespace.nspname = $1::text
  and target.relname in ('_private_jobs', '_private_job_queues')
