-- A heartbeat in the Rust port's table. Its workers recover the jobs of pools that send none for some minutes.
--
-- $1 text     pool id
-- $2 integer  process id
-- Does not wait for the commit to reach the disk (see register_worker).
insert into :GRAPHILE_WORKER_SCHEMA._private_workers (id, last_heartbeat_at, metadata)
select $1, now(), pg_catalog.jsonb_build_object('pid', $2::integer)
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
on conflict (id) do update set last_heartbeat_at = excluded.last_heartbeat_at
