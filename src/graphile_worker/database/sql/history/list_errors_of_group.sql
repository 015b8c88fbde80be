-- Errors with one fingerprint, the latest first. See list_errors for $1 to $3.
--
-- $4 text  fingerprint
select
:include error_columns
from (
  select * from :GRAPHILE_WORKER_SCHEMA._private_py_errors
  where fingerprint = $4::text
    and failed_at >= coalesce($1::timestamptz, '-infinity') and failed_at < coalesce($2::timestamptz, 'infinity')
  order by failed_at desc
  limit $3::integer
) error
:include error_names
order by error.failed_at desc
