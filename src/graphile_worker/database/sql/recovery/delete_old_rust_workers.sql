-- Remove Python pools that ended without deregistering from the Rust port's table of workers: those without recovery
-- are never swept. Their locks are cleared after the same time; rows of Rust workers, which have other names, are not ours.
delete from :GRAPHILE_WORKER_SCHEMA._private_workers worker
where pg_catalog.split_part(worker.id, '-'::text, 1::integer) in ('pool', 'otpool')
  and worker.last_heartbeat_at < now() - interval '4 hours'
