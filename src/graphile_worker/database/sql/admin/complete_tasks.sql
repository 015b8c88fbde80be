-- Task identifiers that contain a text.
-- $1 text     the text
-- $2 integer  how many at most
-- Returns name.
select found.name
from (
    select tasks.identifier as name
    from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
    order by tasks.identifier
    limit 5000
) as found
where pg_catalog.strpos(lower(found.name), lower($1::text)) > 0
order by found.name
limit $2::integer
