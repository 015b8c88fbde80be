-- Forget jobs as they were before changes that are too long ago to be undone.
-- $1 seconds, $2 how many at most.
-- Returns how many were deleted.
with deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
    where kept.ctid = any (array(
        select old.ctid
        from :GRAPHILE_WORKER_SCHEMA._private_py_before as old
        where old.at < now() - pg_catalog.make_interval(secs => $1::double precision)
        order by old.at
        limit $2::integer
    ))
    returning 1
)
select count(*) from deleted
