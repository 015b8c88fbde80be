-- Delete operations that ended long ago.
-- $1 seconds, $2 how many at most.
-- Returns how many were deleted.
with deleted as (
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_operations as operation
    where operation.id = any (array(
        select old.id
        from :GRAPHILE_WORKER_SCHEMA._private_py_operations as old
        where old.finished_at < now() - pg_catalog.make_interval(secs => $1::double precision)
        order by old.id
        limit $2::integer
    ))
    returning 1
)
select count(*) from deleted
