-- Samples of the jobs table and of the workers.

-- statement: add_sample
-- Add a sample of the jobs table.
--
-- $1 to $4 bigint      the server's counters: added, deleted, updated, live
-- $5 to $7 bigint      ready, scheduled, permanently failed
-- $8 boolean           whether one of these three is estimated
-- $9 double precision  oldest wait, in seconds
insert into :GRAPHILE_WORKER_SCHEMA._private_py_samples
  (at, added, deleted, updated, live, ready, scheduled, failed, is_estimate, oldest_wait)
select now(), $1, $2, $3, $4, $5, $6, $7, $8, $9
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
on conflict (at) do nothing

-- statement: read_samples
-- Samples of the jobs table, with the server's counters as they were.
--
-- $1 timestamptz  from this time
-- $2 timestamptz  to this time, exclusive; or null
-- Returns the columns in their order, `at` in seconds since 1970. The last sample before the first one comes first, so
-- that its counters can be compared.
select
  date_part('epoch', samples.at) as at, samples.added, samples.deleted, samples.updated, samples.live,
  samples.ready, samples.scheduled, samples.failed, samples.is_estimate, samples.oldest_wait
from :GRAPHILE_WORKER_SCHEMA._private_py_samples as samples
where samples.at >= coalesce(
  (
    select earlier.at
    from :GRAPHILE_WORKER_SCHEMA._private_py_samples as earlier
    where earlier.at < $1::timestamptz
    order by earlier.at desc
    limit 1
  ),
  $1::timestamptz
)
and samples.at < coalesce($2::timestamptz, 'infinity'::timestamptz)
order by samples.at

-- statement: table_state
-- The jobs table as the server's statistics see it.
--
-- $1 text  the table, with its schema, quoted
-- Returns bytes (with indexes) and dead_rows.
select
  pg_catalog.pg_total_relation_size($1::text::regclass) as bytes,
  pg_stat_get_dead_tuples($1::text::regclass::oid) as dead_rows

-- statement: look_at_jobs
-- What is waiting in the jobs table, in few pages whatever its size: counts stop at a limit, and reach their rows through
-- the indexes for fetching and for failed jobs.
--
-- $1 text     the jobs table, with its schema, quoted
-- $2 integer  limit of each count
-- Returns the server's counters for the table (added, deleted, updated, live), ready, scheduled, failed, and oldest_wait
-- in seconds.
with recursive
beginning (priority) as (select (-32768)::smallint),
:include first_of_priority
,
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

-- statement: scan_jobs
-- What is waiting in the jobs table, from some of its pages or from all.
--
-- $1 text     the jobs table, with its schema, quoted
-- $2 integer  how many of its pages to read
-- Returns the server's counters for the table (added, deleted, updated, live); ready, scheduled and failed as counted,
-- not extrapolated, and locked likewise; oldest_wait in seconds; and the percentage of the table that was read.
select
  pg_stat_get_tuples_inserted($1::text::regclass::oid) as added,
  pg_stat_get_tuples_deleted($1::text::regclass::oid) as deleted,
  pg_stat_get_tuples_updated($1::text::regclass::oid) as updated,
  pg_stat_get_live_tuples($1::text::regclass::oid) as live,
  count(*) filter (where jobs.is_available and jobs.run_at <= now()) as ready,
  count(*) filter (where jobs.is_available and jobs.run_at > now()) as scheduled,
  count(*) filter (where not jobs.is_available and jobs.locked_at is null) as failed,
  count(*) filter (where jobs.locked_at is not null) as locked,
  coalesce(
    greatest(
      date_part('epoch', now()) - date_part(
        'epoch',
        min(greatest(jobs.run_at, jobs.created_at)) filter (where jobs.is_available and jobs.run_at <= now())
      ),
      0::double precision
    ),
    0::double precision
  ) as oldest_wait,
:include scanned_percentage
  as percentage
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system (
:include scanned_percentage
)

-- statement: has_workers
-- Whether the table of worker pools exists and may be read by this role.
--
-- $1 text  name of the schema
select coalesce(
  has_table_privilege(to_regclass(pg_catalog.format('%I._private_py_workers', $1::text))::oid, 'select'::text), false
)

-- statement: count_workers
-- How many worker pools of this package there are, and how busy they are, by their last heartbeats.
--
-- $1 text  name of the schema
-- Returns alive and unreachable (pools), and of the pools that are alive: slots, held (jobs that they have locked) and
-- running (jobs that they run; a pool reports 200 at most).
with
:include workers_with_liveness
select
  count(*) filter (where worker.is_alive) as alive,
  count(*) filter (where not worker.is_alive) as unreachable,
  coalesce(sum(worker.concurrency) filter (where worker.is_alive), 0::bigint) as slots,
  -- By name, because the columns are missing until own_objects/workers is applied.
  coalesce(
    sum((pg_catalog.to_jsonb(worker) ->> 'jobs_held'::text)::integer) filter (where worker.is_alive), 0::bigint
  ) as held,
  coalesce(
    sum(pg_catalog.jsonb_array_length(running.jobs)) filter (where worker.is_alive), 0::bigint
  ) as running
from worker
left join lateral (
  select pg_catalog.to_jsonb(worker) -> 'running'::text as jobs
) as running on pg_catalog.jsonb_typeof(running.jobs) = 'array'::text

-- statement: lock_exporter
-- Take the advisory lock of the one worker that exports the gauges about the database. It ends with the session.
--
-- $1 text  name of the schema
-- Returns whether it was free.
select pg_try_advisory_lock(hashtextextended($1::text || '/exporter', 0::bigint))

-- part: scanned_percentage
  -- $2 pages of the table $1, as a percentage of it.
  least(
    100::double precision,
    100::double precision * $2::integer::double precision / greatest(
      pg_catalog.pg_relation_size($1::text::regclass) / pg_catalog.current_setting('block_size')::bigint, 1::bigint
    )::double precision
  )
