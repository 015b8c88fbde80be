-- How many jobs wait in named queues.

-- statement: queue_support
-- What this schema has for counting the jobs of queues, as far as this role may use it.
--
-- $1 text  name of the schema
-- Returns has_index (own_objects/job_indexes) and has_tracks (own_objects/tracks).
select
  to_regclass(pg_catalog.format('%I._private_py_jobs_queue_next_index', $1::text)) is not null as has_index,
  coalesce(
    has_table_privilege(to_regclass(pg_catalog.format('%I._private_py_tracks', $1::text))::oid, 'select'::text), false
  ) as has_tracks

-- statement: first_queues
-- Named queues and tracks of wide ones, some of all.
--
-- $1 integer  how many at most
-- Returns id and queue_name.
select queue.id, queue.queue_name
from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
limit $1::integer

-- statement: queue_depths
-- Waiting jobs of some queues, counted up to a limit. Needs own_objects/job_indexes.
--
-- $1 integer[]  queue ids
-- $2 integer    how many jobs of each are counted at most
-- Returns id and jobs.
select wanted.id, depth.jobs
from pg_catalog.unnest($1::integer[]) as wanted (id)
cross join lateral (
  select count(*) as jobs
  from (
    select 1 as one
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    where jobs.is_available and jobs.job_queue_id is not null and jobs.job_queue_id = wanted.id
    order by jobs.priority, jobs.run_at
    limit $2::integer
  ) as counted
) as depth

-- statement: sample_queue_depths
-- Waiting jobs of some queues in a sample of the jobs table.
--
-- $1 integer[]  queue ids
-- $2 real       the percentage of the table's pages to read; 100 counts all
-- Returns id and jobs (as counted, not extrapolated), without queues of which the sample has no job.
select jobs.job_queue_id as id, count(*) as jobs
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system ($2::float4)
where jobs.is_available
and jobs.job_queue_id = any ($1::integer[])
group by jobs.job_queue_id

-- statement: tracks_of_queues
-- The tracks of wide queues.
--
-- $1 integer[]  ids of the queues
-- Returns id, and home_id (the queue that it is a track of).
select track.queue_id as id, track.home_id
from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
where track.home_id = any ($1::integer[])
