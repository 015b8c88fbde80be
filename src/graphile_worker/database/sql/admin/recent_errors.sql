-- The latest errors of all jobs, without their texts.
-- $1 the earliest time, $2 how many.
select error.fingerprint, error.job_id, error.failed_at, error.pool_id, error.version
from :GRAPHILE_WORKER_SCHEMA._private_py_errors as error
where error.failed_at >= $1::timestamptz
order by error.failed_at desc
limit $2::integer
