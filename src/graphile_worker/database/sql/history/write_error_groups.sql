-- Add what a pool has counted to the groups of errors.
--
-- $1 text[]        fingerprints, sorted, so that pools lock the rows in the same order
-- $2 integer[]     task ids
-- $3 text[]        types
-- $4 text[]        messages of the latest error
-- $5 text[]        places
-- $6 float8[]      seconds since the first error, by the worker's clock
-- $7 float8[]      seconds since the last error
-- $8 bigint[]      numbers of errors
-- $9 bigint[]      how many of these were permanent
-- $10 bigint[]     the job of the latest
-- $11 text         version of the application
insert into :GRAPHILE_WORKER_SCHEMA._private_py_error_groups as known (
  fingerprint, task_id, error_type, message, place, first_at, last_at, errors, permanent, last_job_id, first_version,
  last_version
)
select
  fingerprint, task_id, error_type, message, place, now() - interval '1 second' * first_ago,
  now() - interval '1 second' * last_ago, errors, permanent, job_id, $11::text, $11
from unnest(
  $1::text[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::double precision[], $7::double precision[],
  $8::bigint[], $9::bigint[], $10::bigint[]
) as counted (
  fingerprint, task_id, error_type, message, place, first_ago, last_ago, errors, permanent, job_id
)
order by fingerprint
on conflict (fingerprint) do update
set
  message = excluded.message,
  last_at = greatest(known.last_at, excluded.last_at),
  errors = known.errors + excluded.errors,
  permanent = known.permanent + excluded.permanent,
  last_job_id = excluded.last_job_id,
  last_version = excluded.last_version
