-- Add a sample of the jobs table.
--
-- $1 to $4 bigint      the server's counters: added, deleted, updated, live
-- $5 to $7 bigint      ready, scheduled, permanently failed
-- $8 boolean           whether one of these three is estimated
-- $9 double precision  oldest wait, in seconds
insert into :GRAPHILE_WORKER_SCHEMA._private_py_samples
  (at, added, deleted, updated, live, ready, scheduled, failed, is_estimate, oldest_wait)
select now(), $1, $2, $3, $4, $5, $6, $7, $8, $9
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
on conflict (at) do nothing
