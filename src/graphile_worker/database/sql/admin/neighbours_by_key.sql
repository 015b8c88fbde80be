-- Other jobs whose keys begin like that of a job: the next ones in the index of keys, in both directions.
-- $1 text     the key
-- $2 text     the beginning
-- $3 integer  how many at most in each direction
-- Returns id, key, by key.
select found.id, found.key
from (
    (
        select job.id, job.key
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.key > $1::text
        order by job.key
        limit $3::integer
    )
    union all
    (
        select job.id, job.key
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.key < $1::text
        order by job.key desc
        limit $3::integer
    )
) as found
where pg_catalog.starts_with(found.key, $2::text)
order by found.key
