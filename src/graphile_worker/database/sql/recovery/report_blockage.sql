-- Record what blocks the event loop of a worker pool, or that it runs again. Needs own_objects/0008_blocked_loop.
--
-- $1 text              pool id
-- $2 text              task identifier, null if it is not a task
-- $3 bigint            job id, or null
-- $4 double precision  seconds since the loop last ran; null if it runs again
-- Not a heartbeat: does not touch last_seen_at.
update :GRAPHILE_WORKER_SCHEMA._private_py_workers
set blocked = case
  when $4::double precision is not null
  then pg_catalog.jsonb_build_object(
    'task', $2::text, 'job', $3::bigint, 'since', date_part('epoch', now()) - $4::double precision
  )
end
where id = $1::text
