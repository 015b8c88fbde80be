-- Wait until no statement is in flight that ends one of these jobs, and keep others from ending them.
--
-- $1 bigint[]  job ids
-- Returns the ids of those that are still locked by a pool.
select id
from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = any ($1::bigint[]) and locked_at is not null
order by id
for update
