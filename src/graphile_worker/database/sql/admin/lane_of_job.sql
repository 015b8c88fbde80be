-- The lane of a worker pool that runs a task, as the pool has described it. Needs own_objects/0003_workers.
--
-- $1 text  pool id
-- $2 text  task identifier
-- Returns the name of the lane; no row if the pool has one lane only, or has not described them.
select lane.value ->> 'name'::text as name
from (
  select case when pg_catalog.jsonb_typeof(found.lanes) = 'array'::text then found.lanes end as lanes
  from (
    -- By name, because the column is missing until own_objects/0019_requests is applied.
    select pg_catalog.to_jsonb(worker) -> 'lanes'::text as lanes
    from :GRAPHILE_WORKER_SCHEMA._private_py_workers as worker
    where worker.id = $1::text
  ) as found
) as described
cross join lateral pg_catalog.jsonb_array_elements(described.lanes) as lane (value)
where pg_catalog.jsonb_array_length(described.lanes) > 1
and (lane.value -> 'tasks'::text) ? $2::text
limit 1
