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
