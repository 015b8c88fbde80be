-- Fetching jobs queue by queue.

-- statement: get_fair_jobs @wide @routed @wide@routed
-- Lock jobs queue by queue: of each named queue in turn its next job, starting after the queue where the last fetch ended.
-- Jobs without a queue take turns as if they were in one.
--
-- At most 4 times as many queues are visited as jobs are wanted, and at least 200.
--
-- $1 to $5    as in get_announced_jobs
-- $6 integer  the queue after which to start
-- Returns the columns of a job, unordered, or one row of nulls; every row ends with the queue after which to start next time
-- and whether all queues with waiting jobs were visited.
with recursive
:include plain
walk (id, step) as (
  select (
    select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > $6::integer
    order by job.job_queue_id limit 1
  ), 1
  union all
  select (
    select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  ), last.step + 1
  from walk last where last.id is not null and last.step < pg_catalog.int4larger(4 * $3, 200)
),
-- The rest of the round, from the first queue to the one where the walk began.
rest (id, step) as (
  select (
    select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id <= $6
    order by job.job_queue_id limit 1
  ), (select pg_catalog.max(step) from walk) + 1
  union all
  select (
    select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id and job.job_queue_id <= $6
    order by job.job_queue_id limit 1
  ), last.step + 1
  from rest last where last.id is not null and last.step < pg_catalog.int4larger(4 * $3, 200)
),
visited as materialized (
  select id, step from walk where id is not null
  union all
  select id, step from rest where id is not null and step <= pg_catalog.int4larger(4 * $3, 200)
),
:include fair
chosen as materialized (
  select place, job_queue_id, old_queue_id, step from (
    select place, job_queue_id, old_queue_id, step, turn from queued
    union all
    select place, null, null, null, (row_number() over (order by priority, run_at))::integer from plain
  ) candidate
  order by turn, step
  limit $3
),
chosen_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
  where queue.id = any (array(select job_queue_id from chosen where job_queue_id is not null))
),
-- See `moved_jobs`.
moved as materialized (
  select pg_catalog.jsonb_object_agg(place::text, job_queue_id) as queues from chosen where job_queue_id <> old_queue_id
),
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
    attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now()),
    job_queue_id = coalesce(((select queues from moved) ->> job.ctid::text)::integer, job.job_queue_id)
  where job.ctid = any (array(select place from chosen))
  returning job.*
)
select
:include taken_columns
  , coalesce(
    (select old_queue_id from chosen where step is not null order by step desc limit 1),
    (select visited.id from visited order by visited.step desc limit 1),
    0
  ) as last_queue
  , (select count(*) from visited) < pg_catalog.int4larger(4 * $3, 200) as is_whole
from (select) always left join taken on true

-- part: fair
-- Part of get_fair_jobs: the next job of each visited queue.
queued as materialized (
  select job.place, queue.id as job_queue_id, queue.id as old_queue_id, visited.step, 1 as turn
  from (select * from visited order by step) visited
  cross join lateral (
    select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
    where queue.id = visited.id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    -- The queue's id makes this run after the lock of the queue; see `queued`.
    select job.ctid as place from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[queue.id]) -- see write_outcomes
:include first_due
    for update skip locked
  ) job
  limit $3
),

-- part: fair@wide
-- Part of get_fair_jobs while there are wide queues: the next jobs of each visited queue. If few queues wait, a wide one gets
-- several jobs at once.
queued as materialized (
  select
    job.place, member.id as job_queue_id, visited.id as old_queue_id, visited.step, member.turn
  from (
    select
      visited.id, visited.step, coalesce(track.home_id, visited.id) as home_id,
      pg_catalog.int4larger(1, $3 / (select pg_catalog.int4larger(1, count(*)::integer) from visited)) as share
    from visited
    left join :GRAPHILE_WORKER_SCHEMA._private_py_tracks track on track.queue_id = visited.id
    order by visited.step
  ) visited
  cross join lateral (
    select pg_catalog.array_agg(head.place) as places
    from (
      select job.ctid as place
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.is_available and job.job_queue_id = any (array[visited.id]) -- see write_outcomes
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
      order by job.job_queue_id, job.priority, job.run_at
      limit visited.share
    ) head
  ) heads
  cross join lateral (
    select locked.id, (row_number() over ())::integer as turn
    from (
      select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
      where queue.is_available and queue.id = any (
        array(
          select visited.home_id
          union all
          select track.queue_id from :GRAPHILE_WORKER_SCHEMA._private_py_tracks track
          where track.home_id = visited.home_id and not track.is_closed
        )
      )
      limit coalesce(pg_catalog.cardinality(heads.places), 0)
      for update skip locked
    ) locked
  ) member
  cross join lateral (
    -- The turn makes this run after the lock of the row; see `queued`.
    select job.ctid as place from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.ctid = heads.places[member.turn] and job.job_queue_id = visited.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = heads.places[member.turn] -- otherwise it was changed by now and cannot be taken
  limit $3
),
