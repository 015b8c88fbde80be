-- Worker pools of this package that are out of reach, for the doctor. Only where the table exists.
-- $1 the schema's name (text), with which a pool that lives holds an advisory lock.
-- Returns alive (how many are in reach) and lost (ids of those that are not), one row.
with
:include judged_workers
select
    count(*) filter (where worker.is_alive)::integer as alive,
    coalesce(pg_catalog.array_agg(worker.id order by worker.id) filter (where not worker.is_alive), '{}') as lost
from worker
