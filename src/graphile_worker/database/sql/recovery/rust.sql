-- The table of workers of the Rust port.

-- statement: has_rust_functions
-- Whether a Rust worker has migrated this schema: only its functions raise GWNOR.
--
-- $1 text  name of the schema
select exists (
  select from pg_catalog.pg_proc proc
  join pg_catalog.pg_namespace namespace on namespace.oid = proc.pronamespace
  where namespace.nspname = $1::text and proc.proname = 'add_job' and strpos(proc.prosrc, 'GWNOR') > 0
)

-- statement: has_rust_rows
-- Whether a worker of another runtime is in the Rust port's table of workers.
select exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_workers worker
  where pg_catalog.split_part(worker.id, '-'::text, 1::integer) not in ('pool', 'otpool')
)

-- statement: rust_workers
-- The workers in the Rust port's table that are not registered in ours: Rust workers with recovery, and Python workers
-- without it.
--
-- $1 integer  how many
-- Returns id, started_at and last_seen_at (seconds since 1970), silent_for (seconds since the last heartbeat) and metadata.
select
  worker.id,
  date_part('epoch', worker.started_at) as started_at,
  date_part('epoch', worker.last_heartbeat_at) as last_seen_at,
  date_part('epoch', now()) - date_part('epoch', worker.last_heartbeat_at) as silent_for,
  worker.metadata::text as metadata
from :GRAPHILE_WORKER_SCHEMA._private_workers worker
where not exists (select from :GRAPHILE_WORKER_SCHEMA._private_py_workers own where own.id = worker.id)
order by worker.last_heartbeat_at desc, worker.id
limit $1::integer

-- statement: may_use_rust_workers
-- Whether the Rust port's table of workers exists, and whether this role may use it.
--
-- $1 text  name of the schema
-- Returns may_use; null if the table does not exist.
select
  pg_catalog.has_table_privilege(class.oid, 'select'::text)
  and pg_catalog.has_table_privilege(class.oid, 'insert'::text)
  and pg_catalog.has_table_privilege(class.oid, 'update'::text)
  and pg_catalog.has_table_privilege(class.oid, 'delete'::text) as may_use
from pg_catalog.pg_class class
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
where namespace.nspname = $1::text and class.relname = '_private_workers'

-- statement: rust_heartbeat
-- A heartbeat in the Rust port's table. Its workers recover the jobs of pools that send none for some minutes.
--
-- $1 text     pool id
-- $2 integer  process id
-- Does not wait for the commit to reach the disk (see register_worker).
insert into :GRAPHILE_WORKER_SCHEMA._private_workers (id, last_heartbeat_at, metadata)
select $1, now(), pg_catalog.jsonb_build_object('pid', $2::integer)
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
on conflict (id) do update set last_heartbeat_at = excluded.last_heartbeat_at

-- statement: deregister_rust_workers
-- Remove pools that have ended from the Rust port's table of workers.
--
-- $1 text[]  pool ids
delete from :GRAPHILE_WORKER_SCHEMA._private_workers where id = any ($1::text[])

-- statement: delete_old_rust_workers
-- Remove Python pools that ended without deregistering from the Rust port's table of workers: those without recovery
-- are never swept. Their locks are cleared after the same time; rows of Rust workers, which have other names, are not ours.
delete from :GRAPHILE_WORKER_SCHEMA._private_workers worker
where pg_catalog.split_part(worker.id, '-'::text, 1::integer) in ('pool', 'otpool')
  and worker.last_heartbeat_at < now() - interval '4 hours'
