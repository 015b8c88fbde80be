-- Who is in the audit, by walking along the index: names for the filter, 50 at most.
with recursive found (who) as (
    (select audit.who from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit order by audit.who limit 1)
    union all
    select (
        select audit.who
        from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
        where audit.who > found.who
        order by audit.who
        limit 1
    )
    from found
    where found.who is not null
)
select found.who from found where found.who is not null limit 50
