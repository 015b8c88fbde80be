-- Whether a worker of another runtime is in the Rust port's table of workers.
select exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_workers worker
  where pg_catalog.split_part(worker.id, '-'::text, 1::integer) not in ('pool', 'otpool')
)
