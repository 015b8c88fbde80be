-- Forget groups without an error for a while, some at a time.
--
-- $1 float8   seconds
-- $2 integer  at most this many
-- Returns how many.
with old as (
  select fingerprint from :GRAPHILE_WORKER_SCHEMA._private_py_error_groups
  where last_at < now() - interval '1 second' * $1::double precision
  order by last_at
  limit $2::integer
),
purged as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_error_groups known
  using old where known.fingerprint = old.fingerprint
  returning known.fingerprint
)
select count(*) from purged
