-- Record how a worker pool stands. Needs own_objects/0019_requests.
--
-- $1 text              pool id
-- $2 boolean           whether notifications reach it
-- $3 double precision  seconds that its clock is ahead of the server's, or null
-- $4 text              processes and machines that run its tasks, as JSON, or null
-- $5 double precision  seconds for which no fetch has succeeded although slots are free, or null
-- Not a heartbeat: does not touch last_seen_at.
update :GRAPHILE_WORKER_SCHEMA._private_py_workers
set state = pg_catalog.jsonb_build_object(
  'is_listening', $2::boolean, 'clock', $3::double precision, 'executors', $4::text::jsonb,
  'stalled_since', date_part('epoch', now()) - $5::double precision
)
where id = $1::text
