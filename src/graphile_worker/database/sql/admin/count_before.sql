-- How many jobs of an action can be undone, counted up to a bound.
-- $1 id in the audit, $2 the bound.
select count(*)
from (
    select 1
    from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
    where kept.audit_id = $1::bigint
    limit $2::integer
) as found
