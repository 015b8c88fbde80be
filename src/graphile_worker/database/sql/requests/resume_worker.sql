-- Let a quiet worker pool fetch jobs again.
--
-- $1 text  pool id
-- Returns whether it was quiet.
with
resumed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_requests where pool_id = $1::text and kind = 'quiet'
  returning id
),
notified as materialized (
  select pg_notify('worker:py', pg_catalog.json_build_object('requests', 1, 'pool', $1::text)::text) from resumed
)
select exists (select from resumed) as was_quiet
from (select count(*) from notified) always
