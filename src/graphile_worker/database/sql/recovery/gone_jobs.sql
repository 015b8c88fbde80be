-- Which of these jobs have no row.
--
-- $1 bigint[]  job ids
-- Returns their ids.
select wanted.id
from pg_catalog.unnest($1::bigint[]) as wanted (id)
where not exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = wanted.id)
