-- The functions of the schema, for the doctor.
-- $1 the schema's name (text).
-- Returns for each: name, owner, body, may_execute.
select
    proc.proname::text as name,
    pg_get_userbyid(proc.proowner)::text as owner,
    proc.prosrc as body,
    has_function_privilege(proc.oid, 'execute') as may_execute
from pg_catalog.pg_proc as proc
join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
where namespace.nspname = $1
order by proc.proname
