-- Which actions are in the audit, by walking along the index.
with recursive found (action) as (
    (select audit.action from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit order by audit.action limit 1)
    union all
    select (
        select audit.action
        from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
        where audit.action > found.action
        order by audit.action
        limit 1
    )
    from found
    where found.action is not null
)
select found.action from found where found.action is not null limit 50
