-- Named queues and their locks.

-- statement: queue_rows
-- What is known of some queues. Needs own_objects/job_indexes.
--
-- $1 integer[]  queue ids
-- $2 integer    how many jobs of each are counted at most
-- Returns, in the order of the ids, queue_name, locked_by, locked_at (seconds since 1970), jobs, ready, and oldest (run_at
-- of the oldest job counted that is ready, in seconds since 1970).
select
  queue.id,
  queue.queue_name,
  queue.locked_by,
  date_part('epoch', queue.locked_at) as locked_at,
  depth.jobs,
  depth.ready,
  date_part('epoch', depth.oldest) as oldest
from pg_catalog.unnest($1::integer[]) with ordinality as wanted (id, position)
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = wanted.id
cross join lateral (
  select
    count(*) as jobs,
    count(*) filter (where counted.run_at <= now()) as ready,
    min(counted.run_at) filter (where counted.run_at <= now()) as oldest
  from (
    select job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id = queue.id
    order by job.priority, job.run_at
    limit $2::integer
  ) counted
) depth
order by wanted.position

-- statement: queues_by_name
-- Queues whose names begin with a text, by name. Reads a bounded part of the index on names.
--
-- $1 text     the beginning
-- $2 text     those after this name, or null
-- $3 integer  how many names are read
-- Returns id, queue_name, and matches: whether the name begins with the text.
select id, queue_name, starts_with(queue_name, $1::text) as matches
from :GRAPHILE_WORKER_SCHEMA._private_job_queues
where queue_name >= $1::text and ($2::text is null or queue_name > $2::text)
order by queue_name
limit $3::integer

-- statement: queues_with_jobs
-- Queues that have waiting jobs, by id: a walk over an index of our own, which reads a few pages for each. Needs
-- own_objects/job_indexes.
--
-- $1 integer  those after this queue id
-- $2 integer  how many at most
-- Returns id.
with recursive walk as (
  (
    select job.job_queue_id as id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > $1::integer
    order by job.job_queue_id
    limit 1
  )
  union all
  select (
    select job.job_queue_id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > walk.id
    order by job.job_queue_id
    limit 1
  )
  from walk
  where walk.id is not null
)
select id from walk where id is not null limit $2::integer

-- statement: locked_queues
-- Queues that are locked or paused, if there are few queues: no index leads to them.
--
-- $1 text     quoted name of the table of queues
-- $2 integer  size in pages up to which it is read
-- $3 integer  how many at most
-- Returns id, the longest locked first.
select id
from :GRAPHILE_WORKER_SCHEMA._private_job_queues
where locked_at is not null
  and (
    select pg_catalog.pg_relation_size(pg_catalog.to_regclass($1::text))
      <= $2::integer::bigint * pg_catalog.current_setting('block_size')::bigint
  )
order by locked_at, id
limit $3::integer

-- statement: running_in_queues
-- Which of some jobs are running in some queues.
--
-- $1 bigint[]   job ids
-- $2 integer[]  queue ids
-- Returns id, task, locked_by, locked_at (seconds since 1970).
select job.id, task.identifier as task, job.locked_by, date_part('epoch', job.locked_at) as locked_at
from pg_catalog.unnest($1::bigint[]) as wanted (id)
cross join lateral (
  select id, task_id, job_queue_id, locked_by, locked_at
  from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = wanted.id
  limit 1 -- keeps the planner from reading the whole table once
) job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
where job.job_queue_id = any ($2::integer[]) and job.locked_at is not null
order by job.locked_at

-- statement: unlock_queues
-- Free queues that a dead worker has locked, if it still has them.
--
-- $1 integer[]  queue ids
-- $2 text       the worker
-- Returns how many were freed.
with
freed as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues
  set locked_at = null, locked_by = null
  where id = any ($1::integer[]) and locked_by = $2::text and locked_by <> 'py:hold'
  returning id
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from freed having count(*) > 0
)
select count(*) as queues from freed left join notified on true

-- statement: queue_of_job
-- The queue of a job: who has locked it, how wide it is, and the tracks of a wide one.
-- $1 integer  the id of the queue, or of a track
-- Returns for the queue and each track: id, name, locked_by, locked_at (seconds since 1970), is_home; none without a queue.
with home as materialized (
    select pg_catalog.regexp_replace(own.queue_name, ' \[[1-9][0-9]*\]$', '') as name
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as own
    where own.id = $1::integer
)
select
    job_queues.id,
    home.name,
    job_queues.locked_by,
    date_part('epoch', job_queues.locked_at) as locked_at,
    job_queues.queue_name = home.name as is_home
from home
join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    on job_queues.queue_name = home.name
    or job_queues.queue_name = any (array(
        select home.name || ' [' || number::text || ']' from home, pg_catalog.generate_series(2, 100) as number
    ))
order by job_queues.queue_name

-- statement: lane_of_job
-- The lane of a worker pool that runs a task, as the pool has described it. Needs own_objects/workers.
--
-- $1 text  pool id
-- $2 text  task identifier
-- Returns the name of the lane; no row if the pool has one lane only, or has not described them.
select lane.value ->> 'name'::text as name
from (
  select case when pg_catalog.jsonb_typeof(found.lanes) = 'array'::text then found.lanes end as lanes
  from (
    -- By name, because the column is missing until own_objects/workers is applied.
    select pg_catalog.to_jsonb(worker) -> 'lanes'::text as lanes
    from :GRAPHILE_WORKER_SCHEMA._private_py_workers as worker
    where worker.id = $1::text
  ) as found
) as described
cross join lateral pg_catalog.jsonb_array_elements(described.lanes) as lane (value)
where pg_catalog.jsonb_array_length(described.lanes) > 1
and (lane.value -> 'tasks'::text) ? $2::text
limit 1

-- statement: lock_holders
-- Who has jobs locked, if the jobs table is small: no index leads to locked jobs.
--
-- $1 text     quoted name of the jobs table
-- $2 integer  size in pages up to which it is scanned
-- Returns is_scanned and, for each holder, id, jobs and locked_since (seconds since 1970); a null id if there is none.
with
scan as materialized (
  select
    pg_catalog.pg_relation_size(pg_catalog.to_regclass($1::text))
    <= $2::integer::bigint * pg_catalog.current_setting('block_size')::bigint as is_scanned
),
held as (
  select locked_by as id, count(*) as jobs, date_part('epoch', min(locked_at)) as locked_since
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where (select is_scanned from scan) and locked_by is not null
  group by locked_by
)
select scan.is_scanned, held.id, held.jobs, held.locked_since
from scan left join held on true
order by held.id

-- statement: neighbours_in_queue
-- Waiting jobs of a queue before and after one, in the order in which they run.
-- $1 integer  the id of the queue
-- $2 integer  priority, $3 float8 run_at (seconds since 1970) and $4 bigint id of the job
-- $5 integer  how many at most in each direction
-- Returns id, is_before; in run order.
select found.id, found.is_before
from (
    (
        select job.id, job.priority, job.run_at, true as is_before
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available and job.job_queue_id is not null and job.job_queue_id = $1::integer
        and (job.priority, job.run_at) <= ($2::integer, to_timestamp($3::float8)) and job.id <> $4::bigint
        order by job.job_queue_id desc, job.priority desc, job.run_at desc
        limit $5::integer
    )
    union all
    (
        select job.id, job.priority, job.run_at, false
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available and job.job_queue_id is not null and job.job_queue_id = $1::integer
        and (job.priority, job.run_at) > ($2::integer, to_timestamp($3::float8)) and job.id <> $4::bigint
        order by job.job_queue_id, job.priority, job.run_at
        limit $5::integer
    )
) as found
order by found.priority, found.run_at, found.id
