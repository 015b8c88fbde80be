-- Note that a worker pool has further tasks.
--
-- $1 text    pool id
-- $2 text[]  task identifiers
update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
set tasks = array(
  select identifier
  from (
    select pg_catalog.unnest(worker.tasks) as identifier
    union
    select pg_catalog.unnest($2::text[])
  ) known
  order by identifier
)
where worker.id = $1::text
