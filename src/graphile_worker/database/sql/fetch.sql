-- statement: get_announced_jobs
-- Lock the next jobs for a pool after one was announced, if all have the same priority and none waits in a named queue;
-- lock none otherwise. The fast path of get_plain_jobs, which spends a fifth of its time on finding no other priority
-- and no named queue.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      limit
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns the columns of a job, unordered.
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (
  array(
    select next.ctid
    from :GRAPHILE_WORKER_SCHEMA._private_jobs next
    where next.is_available and next.job_queue_id is null
      and next.priority = (
        select lowest.priority
        from (
          select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
          where is_available and job_queue_id is null
          order by priority limit 1
        ) lowest
        cross join (
          select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
          where is_available and job_queue_id is null
          order by priority desc limit 1
        ) highest
        where lowest.priority = highest.priority
          and not exists (
            select from :GRAPHILE_WORKER_SCHEMA._private_jobs where is_available and job_queue_id is not null
          )
      )
      and next.run_at <= coalesce($5::timestamptz, now())
      and next.task_id = any ((select $2::text::integer[])::integer[])
      and ($4::text[] is null or next.flags is null or not next.flags ?| $4::text[])
    order by next.run_at
    limit $3::integer
    for update skip locked
  )
)
returning
:include taken_columns

-- statement: get_fair_jobs @wide
-- Lock jobs queue by queue: of each named queue in turn its next job, starting after the queue where the last fetch ended.
-- Jobs without a queue take turns as if they were in one.
--
-- At most 4 times as many queues are visited as jobs are wanted, and at least 200.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      limit
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- $6 integer      the queue after which to start
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
-- See get_jobs for wide queues.
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

-- statement: get_jobs @wide
-- Lock the next jobs for a pool: by priority, then run_at; at most one job per named queue.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      limit
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns the columns of a job, unordered.
--
-- Locked rows are updated by their ctid: a join on the id makes the planner read the whole table at middle sizes. Rows
-- that are locked but not taken are unlocked unchanged when the statement ends.
with recursive
:include plain
:include queued
:include take_chosen

-- statement: get_jobs_above_watermarks @urgent @wide
-- Lock the next jobs like get_jobs, but read those without a queue from given watermarks on.
--
-- Used for a while after get_jobs was slow because it had to read past very many rows that it cannot take: jobs of tasks
-- that this pool does not have, or dead rows that a long transaction keeps from being vacuumed. Priorities with a
-- watermark are read from there, and the gaps between them from the start. The variant `urgent` takes no job of a queue
-- either that is worse than the last range.
--
-- $1 text                pool id, written to locked_by
-- $2 text                ids of the tasks that this pool can run
-- $3 integer             limit
-- $4 text[]              forbidden flags, or null
-- $5 timestamptz         the worker's time, or null for the server's
-- $6 smallint[]          ranges of priorities in ascending order: the lowest of each ...
-- $7 smallint[]          ... and the highest
-- $8 double precision[]  the run_at to start from in each range (seconds since 1970)
-- Returns the columns of a job, unordered.
with recursive
:include plain_above_watermarks
:include queued
:include take_chosen

-- statement: get_plain_jobs
-- Lock the next jobs like get_jobs if no job of a named queue can be next; lock none otherwise.
--
-- The fast path for the usual case: get_jobs would cost an idle worker a fifth of a millisecond more, and milliseconds
-- if many jobs wait for a busy queue.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      limit
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns the columns of a job, unordered.
with recursive
:include plain
:include take_plain

-- statement: get_plain_jobs_above_watermarks
-- Lock the next jobs like get_plain_jobs, but from given watermarks on: the fast path of get_jobs_above_watermarks.
--
-- $1 text                pool id, written to locked_by
-- $2 text                ids of the tasks that this pool can run
-- $3 integer             limit
-- $4 text[]              forbidden flags, or null
-- $5 timestamptz         the worker's time, or null for the server's
-- $6 smallint[]          ranges of priorities in ascending order: the lowest of each ...
-- $7 smallint[]          ... and the highest
-- $8 double precision[]  the run_at to start from in each range (seconds since 1970)
-- Returns the columns of a job, unordered.
with recursive
:include plain_above_watermarks
:include take_plain

-- statement: list_priorities
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; and how long the
-- server takes for that, and to read past the rows that a fetch cannot take. It locks none.
--
-- A fetch may take long for other reasons: it waits for a lock on the table, or the answer for the worker. The clock starts
-- when the statement has all its locks. Reading ends at 50,000 rows, because jobs wait for the answer: there are many then.
--
-- $1 integer      how many priorities
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      how many jobs to find; 0 to find none
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns priority, the server's time in seconds since 1970, the seconds that it took, and whether reading ended early; one
-- row with a null priority if there is no such job.
with recursive
:include terms
:include plain_priority
,
-- Each of these runs after the one before, because it refers to it.
began as materialized (select clock_timestamp() as at),
listed as materialized (
  select walk.priority
  from began cross join lateral (
    select priority from plain_priority where priority is not null and began.at is not null limit $1::integer
  ) walk
),
-- Read only as far as `found` asks for it. More priorities than those that are listed are read as one range.
ready as materialized (
  select job.task_id, job.flags, job.locker
  from (
    select job.task_id, job.flags, job.locker
    from listed cross join lateral (
      select job.task_id, job.flags, job.xmax as locker
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.is_available and job.job_queue_id is null
        and job.priority = listed.priority and job.run_at <= coalesce($5::timestamptz, now())
      order by job.run_at
      limit 50000
    ) job
    union all
    select job.task_id, job.flags, job.locker
    from (
      select pg_catalog.max(priority) as priority from listed having count(*) >= $1::bigint
    ) last cross join lateral (
      select job.task_id, job.flags, job.xmax as locker
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.is_available and job.job_queue_id is null
        and job.priority > last.priority and job.run_at <= coalesce($5::timestamptz, now())
      order by job.priority, job.run_at
      limit 50000
    ) job
  ) job
  limit case when $3::integer > 0 then 50000 else 0 end
),
found as materialized (
  select count(*) as jobs
  from (
    select
    from ready job
    where job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
      and (job.locker = 0 or job.locker <> all ((select transactions from other)::xid[]))
    limit $3::integer
  ) job
),
ended as materialized (
  select clock_timestamp() as at, found.jobs < $3::bigint and (select count(*) from ready) >= 50000::bigint as is_cut
  from (select count(*) as priorities from listed) walk cross join found
  where walk.priorities is not null
)
select
  listed.priority, date_part('epoch', now()) as now, date_part('epoch', ended.at - began.at) as seconds, ended.is_cut
from ended cross join began left join listed on true

-- statement: may_queues_be_next
-- Whether a job of a named queue may be next, so that get_plain_jobs locks none.
--
-- $1 text         ids of the tasks that this pool can run
-- $2 text[]       forbidden flags, or null
-- $3 timestamptz  the worker's time, or null for the server's
with recursive
task (ids) as materialized (select $1::text::integer[]),
term (flags, moment) as materialized (select $2::text[], coalesce($3::timestamptz, now())),
:include free_queues
select may_be_next from queues

-- part: take_plain
-- Part of get_plain_jobs and get_plain_jobs_above_watermarks: takes the jobs of `plain`, which is not even read if a job
-- of a named queue may be next.
term (flags, moment) as materialized (select $4::text[], coalesce($5::timestamptz, now())),
:include free_queues
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from plain where not (select may_be_next from queues)))
returning
:include taken_columns

-- part: take_chosen
-- Part of get_jobs and get_jobs_above_watermarks: takes the jobs that `queued` has chosen, and locks their queues.
,
chosen_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
  where queue.id = any (array(select job_queue_id from chosen where job_queue_id is not null))
)
:include moved_jobs
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
:include moved_to
where job.ctid = any (array(select place from chosen))
returning
:include taken_columns

-- part: moved_jobs
-- While there are wide queues, jobs are moved to the row of the queue that they lock.

-- part: moved_jobs@wide
,
-- New queues by ctid. A join of the update with `chosen` might read the whole table.
moved as materialized (
  select pg_catalog.jsonb_object_agg(place::text, job_queue_id) as queues from chosen where job_queue_id <> old_queue_id
)

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
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
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
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
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
