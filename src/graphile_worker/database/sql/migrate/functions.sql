-- The functions and procedures of the schema.
-- Parameters: $1 the schema's name (text).
-- Result: rows with name and body (text).
select proc.proname::text as name, proc.prosrc as body
from pg_catalog.pg_proc as proc
join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
where namespace.nspname = $1::text
