-- Who has jobs locked, if the jobs table is small: no index leads to locked jobs.
--
-- $1 text     quoted name of the jobs table
-- $2 integer  size in pages up to which it is scanned
-- Returns is_scanned and, for each holder, id, jobs and locked_since (seconds since 1970); a null id if there is none.
with
scan as materialized (
  select
    pg_catalog.pg_relation_size(pg_catalog.to_regclass($1::text))
    <= $2::integer::bigint * pg_catalog.current_setting('block_size')::bigint as is_scanned
),
held as (
  select locked_by as id, count(*) as jobs, date_part('epoch', min(locked_at)) as locked_since
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where (select is_scanned from scan) and locked_by is not null
  group by locked_by
)
select scan.is_scanned, held.id, held.jobs, held.locked_since
from scan left join held on true
order by held.id
