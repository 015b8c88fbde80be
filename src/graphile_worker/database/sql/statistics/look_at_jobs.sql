-- What is waiting in the jobs table, in few pages whatever its size: counts stop at a limit, and reach their rows through
-- the indexes for fetching and for failed jobs.
--
-- $1 text     the jobs table, with its schema, quoted
-- $2 integer  limit of each count
-- Returns the server's counters for the table (added, deleted, updated, live), ready, scheduled, failed, and oldest_wait
-- in seconds.
with recursive
first_of_priority as (
  (
    select jobs.id, jobs.priority, jobs.run_at, 1 as step
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.is_available = true
    order by jobs.priority, jobs.run_at
    limit 1
  )
  union all
  select following.id, following.priority, following.run_at, first_of_priority.step + 1
  from first_of_priority
  cross join lateral (
    select jobs.id, jobs.priority, jobs.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.is_available = true
    and jobs.priority > first_of_priority.priority
    order by jobs.priority, jobs.run_at
    limit 1
  ) as following
  where first_of_priority.step < 100
),
ready as (
  select 1 as one
  from first_of_priority
  cross join lateral (
    select 1 as one
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.is_available = true
    and jobs.priority = first_of_priority.priority
    and jobs.run_at <= now()
    order by jobs.run_at
    limit $2::integer
  ) as job
  limit $2::integer
),
scheduled as (
  select 1 as one
  from first_of_priority
  cross join lateral (
    select 1 as one
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.is_available = true
    and jobs.priority = first_of_priority.priority
    and jobs.run_at > now()
    order by jobs.run_at
    limit $2::integer
  ) as job
  limit $2::integer
),
failed as (
  select 1 as one
  from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
  where not jobs.is_available and jobs.locked_at is null
  order by jobs.id
  limit $2::integer
),
oldest as (
  select min(greatest(jobs.run_at, jobs.created_at)) as since
  from first_of_priority
  join :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs on jobs.id = first_of_priority.id
  where first_of_priority.run_at <= now()
)
select
  pg_stat_get_tuples_inserted($1::text::regclass::oid) as added,
  pg_stat_get_tuples_deleted($1::text::regclass::oid) as deleted,
  pg_stat_get_tuples_updated($1::text::regclass::oid) as updated,
  pg_stat_get_live_tuples($1::text::regclass::oid) as live,
  (select count(*) from ready) as ready,
  (select count(*) from scheduled) as scheduled,
  (select count(*) from failed) as failed,
  coalesce(
    greatest(date_part('epoch', now()) - date_part('epoch', oldest.since), 0::double precision), 0::double precision
  ) as oldest_wait
from oldest
