-- Errors of attempts, and their groups.

-- statement: list_errors @of_group
-- Errors of all jobs, the latest first.
--
-- $1 timestamptz  the earliest, or null
-- $2 timestamptz  before this one, or null
-- $3 integer      at most this many
-- $4 text         in the variant `of_group`, the fingerprint of all of them
select
:include error_columns
from (
  select * from :GRAPHILE_WORKER_SCHEMA._private_py_errors
  where failed_at >= coalesce($1::timestamptz, '-infinity') and failed_at < coalesce($2::timestamptz, 'infinity')
:include of_group
  order by failed_at desc
  limit $3::integer
) error
:include error_names
order by error.failed_at desc

-- statement: errors_of_job
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

-- statement: write_error_groups
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

-- statement: list_error_groups
-- Groups of errors, the one that occurred last first: as workers have counted them, plus stored errors that are not
-- counted yet. A worker counts in memory and writes the counts every few seconds, or never if it is killed. Jobs whose
-- worker died are not counted.
--
-- $1 timestamptz  only groups with an error since then, or null
-- $2 text         only errors of this task, or null
-- $3 integer      at most this many
-- $4 timestamptz  only groups whose last error was before, or null
-- $5 text         only this fingerprint, or null
-- $6 integer      how many of the latest stored errors to read
-- Returns the columns of ErrorGroup, is_stored (whether the message is that of a stored error) and the traceback of that
-- error; the place is null if none is counted.
with wanted as materialized (
  select name.id from :GRAPHILE_WORKER_SCHEMA._private_py_task_names name where name.identifier = $2::text
  union all
  select task.id from :GRAPHILE_WORKER_SCHEMA._private_tasks task
  where task.identifier = $2::text
    and not exists (select from :GRAPHILE_WORKER_SCHEMA._private_py_task_names name where name.id = task.id)
),
stored as materialized (
  select fingerprint, task_id, error_type, message, traceback, failed_at, is_final, job_id, version
  from :GRAPHILE_WORKER_SCHEMA._private_py_errors
  where failed_at >= coalesce($1::timestamptz, '-infinity')
  order by failed_at desc
  limit $6::integer
),
newer as materialized (
  select distinct on (stored.fingerprint)
    stored.fingerprint, stored.task_id, stored.error_type, stored.message, stored.traceback, stored.job_id, stored.version,
    stored.failed_at, known.place,
    coalesce(known.first_at, min(stored.failed_at) over same) as first_at,
    coalesce(known.errors, 0) + count(*) over same as errors,
    coalesce(known.permanent, 0) + count(*) filter (where stored.is_final) over same as permanent,
    case
      when known.fingerprint is not null then known.first_version
      else pg_catalog.first_value(stored.version) over (partition by stored.fingerprint order by stored.failed_at)
    end as first_version
  from stored
  left join :GRAPHILE_WORKER_SCHEMA._private_py_error_groups known on known.fingerprint = stored.fingerprint
  where (known.fingerprint is null or stored.failed_at > known.last_at)
    and ($2::text is null or stored.task_id = any (array(select wanted.id from wanted)))
    and ($5::text is null or stored.fingerprint = $5::text)
  window same as (partition by stored.fingerprint)
  order by stored.fingerprint, stored.failed_at desc
),
shown as (
  (
    select
      fingerprint, task_id, error_type, message, place, first_at, last_at, errors, permanent, last_job_id, first_version,
      last_version, false as is_stored, null::text as traceback
    from :GRAPHILE_WORKER_SCHEMA._private_py_error_groups
    where last_at >= coalesce($1::timestamptz, '-infinity')
      and last_at < coalesce($4::timestamptz, 'infinity')
      and ($2::text is null or task_id = any (array(select wanted.id from wanted)))
      and ($5::text is null or fingerprint = $5::text)
      and fingerprint <> all (array(select newer.fingerprint from newer))
    order by last_at desc
    limit $3::integer
  )
  union all
  select
    fingerprint, task_id, coalesce(error_type, ''), message, place, first_at, failed_at, errors, permanent, job_id,
    first_version, version, true, traceback
  from newer
  where failed_at < coalesce($4::timestamptz, 'infinity')
)
select
  shown.fingerprint, coalesce(name.identifier, task.identifier, '') as task_identifier, shown.error_type, shown.message,
  shown.place, shown.first_at, shown.last_at, shown.errors, shown.permanent, shown.last_job_id, shown.first_version,
  shown.last_version, shown.is_stored, shown.traceback
from (select * from shown order by last_at desc limit $3::integer) shown
left join :GRAPHILE_WORKER_SCHEMA._private_py_task_names name on name.id = shown.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = shown.task_id
order by shown.last_at desc

-- statement: purge_error_groups
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

-- part: error_columns
  -- The columns of AttemptError, in the order of its fields.
  error.job_id, error.attempt, coalesce(name.identifier, task.identifier, '') as task_identifier, error.failed_at,
  error.duration, error.is_final, error.error_type, error.message, error.traceback, error.fingerprint, error.pool_id,
  error.version

-- part: error_names
left join :GRAPHILE_WORKER_SCHEMA._private_py_task_names name on name.id = error.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = error.task_id

-- part: of_group
    -- Of all groups.

-- part: of_group@of_group
    and fingerprint = $4::text
