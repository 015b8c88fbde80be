-- Rows of the audit about one job, the latest first: of actions on it by id, and of operations of the last 24 hours.
-- $1 job id, $2 the id before which to start, or null, $3 how many.
select
:include audit_columns
where audit.id = any (array(
    select found.id
    from (
        (
            select direct.id
            from :GRAPHILE_WORKER_SCHEMA._private_py_audit as direct
            where direct.job_ids operator(pg_catalog.@>) array[$1::bigint]
        )
        union
        (
            select kept.audit_id
            from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
            where kept.job_id = $1::bigint
        )
    ) as found
    where found.id < coalesce($2::bigint, 9223372036854775807)
    order by found.id desc
    limit $3::integer
))
order by audit.id desc
