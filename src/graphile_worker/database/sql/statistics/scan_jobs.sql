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
