-- Deploys of the application, the latest first.
--
-- $1 timestamptz  since when they were started
-- $2 integer      how many at most
-- Returns version, started_at, last_started_at (seconds since 1970), starts.
select
  version, date_part('epoch', started_at) as started_at, date_part('epoch', last_started_at) as last_started_at, starts
from :GRAPHILE_WORKER_SCHEMA._private_py_deploys
where started_at >= $1::timestamptz
order by id desc
limit $2::integer
