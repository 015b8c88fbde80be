-- Queues that are locked or paused, if there are few queues: no index leads to them.
--
-- $1 text     quoted name of the table of queues
-- $2 integer  size in pages up to which it is read
-- $3 integer  how many at most
-- Returns id, the longest locked first.
select id
from :GRAPHILE_WORKER_SCHEMA._private_job_queues
where locked_at is not null
  and (
    select pg_catalog.pg_relation_size(pg_catalog.to_regclass($1::text))
      <= $2::integer::bigint * pg_catalog.current_setting('block_size')::bigint
  )
order by locked_at, id
limit $3::integer
