-- Which of these jobs a pool still has locked.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- Returns their ids, and when they were added, in seconds since 1970.
select id, date_part('epoch', created_at) as created_at
from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = any ($2::bigint[]) and locked_by = $1::text
