-- Delete old rows of the audit.
-- $1 seconds, $2 how many at most.
-- Returns how many were deleted.
with deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_audit as audit
    where audit.id = any (array(
        select old.id
        from :GRAPHILE_WORKER_SCHEMA._private_py_audit as old
        where old.at < now() - pg_catalog.make_interval(secs => $1::double precision)
        order by old.at
        limit $2::integer
    ))
    returning 1
)
select count(*) from deleted
