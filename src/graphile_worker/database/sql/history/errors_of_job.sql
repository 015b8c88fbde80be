-- The errors of a job, the latest first.
--
-- $1 bigint   job id
-- $2 integer  at most this many
select
:include error_columns
from (
  select * from :GRAPHILE_WORKER_SCHEMA._private_py_errors
  where job_id = $1::bigint
  order by failed_at desc, attempt desc
  limit $2::integer
) error
:include error_names
order by error.failed_at desc, error.attempt desc
