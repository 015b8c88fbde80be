-- Errors of all jobs, the latest first.
--
-- $1 timestamptz  the earliest, or null
-- $2 timestamptz  before this one, or null
-- $3 integer      at most this many
select
:include error_columns
from (
  select * from :GRAPHILE_WORKER_SCHEMA._private_py_errors
  where failed_at >= coalesce($1::timestamptz, '-infinity') and failed_at < coalesce($2::timestamptz, 'infinity')
  order by failed_at desc
  limit $3::integer
) error
:include error_names
order by error.failed_at desc
