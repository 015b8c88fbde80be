-- Lock jobs of a held batch whose transaction was lost, as far as they are still as the batch found them.
--
-- $1 text         pool id
-- $2 bigint[]     job ids
-- $3 integer[]    the attempts that each would have now
-- $4 timestamptz  the worker's time, or null for the server's
-- Returns id and is_ours: true if this pool has locked it now; false if it is free, but its row cannot be locked now: a
-- transaction has locked it, perhaps the lost one, or a policy hides it from updates; null if another worker has or had
-- it, or a trigger keeps its row. No row for a job that is gone.
with
wanted as materialized (
  select id, attempts from unnest($2::bigint[], $3::integer[]) as wanted (id, attempts)
),
free as materialized (
  select job.id
  from wanted join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = wanted.id
  where job.locked_at is null and job.attempts::integer = wanted.attempts - 1
  for update of job skip locked
),
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($4::timestamptz, now())
  where job.id = any (array(select id from free))
  returning job.id
)
select
  job.id,
  case
    when job.locked_by = $1::text or taken.id is not null then true
    when job.locked_at is null and job.attempts::integer = wanted.attempts - 1
      and job.id <> all (array(select id from free)) then false
  end as is_ours
from wanted
join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = wanted.id
left join taken on taken.id = job.id
