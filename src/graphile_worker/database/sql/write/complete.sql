-- Completed jobs.

-- statement: complete_job
-- Delete one completed job without a named queue. Fast path of complete_jobs; see `completed` for the condition.
--
-- $1 text    pool id
-- $2 bigint  job id
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id = $2::bigint and (locked_by = $1::text or key is null)

-- statement: complete_jobs
-- Delete completed jobs without a named queue.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- Returns no row if all were deleted, else one row with the ids of those that were not.
with
:include completed
:include missing

-- statement: complete_adjacent_jobs
-- Delete completed jobs without a named queue whose ids are close together. Takes two thirds of the time of complete_jobs:
-- one index scan from the first id to the last replaces a lookup for each.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- $3 bigint    the lowest of them
-- $4 bigint    the highest of them
-- Returns no row if all were deleted, else one row with the ids of those that were not.
-- `is true` keeps the list in a hash table; without it the planner turns the list into a join with a lookup for each id.
with completed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id between $3::bigint and $4::bigint
    and (id in (select pg_catalog.unnest($2::bigint[]))) is true
    and (locked_by = $1::text or key is null)
  returning id
)
:include missing

-- statement: complete_many_jobs
-- Delete a large number of completed jobs whose ids are close together. Like complete_adjacent_jobs, but does not report
-- which were missing: to return each row takes a third more time. The caller compares the number of deleted rows; if some
-- are missing, it rolls back and runs complete_adjacent_jobs.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- $3 bigint    the lowest of them
-- $4 bigint    the highest of them
-- `is true`: see complete_adjacent_jobs.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id between $3::bigint and $4::bigint
  and (id in (select pg_catalog.unnest($2::bigint[]))) is true
  and (locked_by = $1::text or key is null)

-- statement: complete_queued_jobs
-- Delete completed jobs and unlock their named queues.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- Returns no row if all were deleted, else one row with the ids of those that were not.
with
:include completed
,
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1::text
    and queue.id = any (array(select job_queue_id from completed where job_queue_id is not null))
)
:include missing

-- statement: complete_and_take_next @wide @routed @wide@routed
-- Delete completed jobs and lock the next job of each of their named queues. Fast path of write_outcomes for batches
-- without failures.
--
-- $1 text         pool id
-- $2 bigint[]     ids of completed jobs
-- $3 text         ids of the tasks this pool can run, as an array literal such as {1,2}
-- $4 text[]       rules for flags, or null: see `flag_rules`
-- $5 timestamptz  the current time for the choice of the next job, or null for the server's
-- Returns the columns of each job that was locked, or one row of nulls. Every row ends with the ids of the jobs that were
-- deleted, or null if all of them were.
with
:include completed
,
ended as (select job_queue_id from completed),
:include next_jobs
:include take_next
select
:include taken_columns
  , (
    select case when count(*) < pg_catalog.cardinality($2::bigint[]) then coalesce(pg_catalog.array_agg(id), '{}') end
    from completed
  ) as completed
from (select) always left join taken on true
order by priority, run_at

-- part: missing
-- The answer of the statements that only delete: no row if `completed` has all of $2, else one with the missing ids.
select array(select pg_catalog.unnest($2::bigint[]) except select id from completed) as missing
where (select count(*) from completed) < pg_catalog.cardinality($2::bigint[])

-- part: completed
-- Part of the statements that delete completed jobs by a list of ids: $1 is the pool id, $2 the job ids.
-- The lock is checked only for jobs with a key. Completed means that the work is done, whichever pool has the job now.
-- But if this pool lost a job with a key, its payload may have been replaced, and that work is not done.
completed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
)

-- part: next_jobs
-- Part of write_outcomes and complete_and_take_next: lock the next job of each queue in `ended`; `take_next` takes it.
-- The driver takes ten times as long to send an array of ten thousand numbers as one text.
task (ids) as materialized (select $3::text::integer[]),
-- Only queues of jobs that this statement has written: when a write is repeated because its answer was lost, the
-- queue may already be running another job of this pool.
held_queue as materialized (
  select id from :GRAPHILE_WORKER_SCHEMA._private_job_queues
  where locked_by = $1::text
    and id = any (array(select job_queue_id from ended where job_queue_id is not null))
),
-- An array of one queue instead of an equality: then only the index that starts with the queue provides this order, and
-- the planner cannot choose to read the jobs of all queues when it expects only a few.
next as materialized (
  select head.place
  from held_queue cross join lateral (
    select job.ctid as place
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[held_queue.id])
:include first_due
    for update skip locked
  ) head
),

-- part: next_jobs@wide
-- Part of write_outcomes and complete_and_take_next while there are wide queues: `next_jobs` for queues that may run
-- several jobs at once. Each row of a queue that became free takes a job of its home, or one that waits in the row itself.
-- The driver takes ten times as long to send an array of ten thousand numbers as one text.
task (ids) as materialized (select $3::text::integer[]),
-- Only queues of jobs that this statement has written; see `next_jobs`.
held_queue as materialized (
  select queue.id, coalesce(track.home_id, queue.id) as home_id
  from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  left join :GRAPHILE_WORKER_SCHEMA._private_py_tracks track on track.queue_id = queue.id
  where queue.locked_by = $1::text
    and queue.id = any (array(select job_queue_id from ended where job_queue_id is not null))
),
-- Another pool may take jobs of the same home at this moment, so some more are examined.
next as materialized (
  select head.place, head.job_queue_id as old_queue_id, home.queues[head.turn] as job_queue_id
  from (
    select home_id as id, pg_catalog.array_agg(id) as queues, count(*)::integer as free from held_queue group by home_id
  ) home
  cross join lateral (
    select locked.place, locked.job_queue_id, (row_number() over ())::integer as turn
    from (
      -- By ctid, in this order: with an order of its own the planner would read the index of all waiting jobs.
      select job.place, job.job_queue_id
      from pg_catalog.unnest(
        array(
          select first.place
          from (select home.id union select pg_catalog.unnest(home.queues)) source (id)
          cross join lateral (
            select job.ctid as place, job.priority, job.run_at
            from :GRAPHILE_WORKER_SCHEMA._private_jobs job
            where job.is_available and job.job_queue_id = any (array[source.id]) -- see `next_jobs`
              and job.run_at <= coalesce($5::timestamptz, now())
              and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
            order by job.job_queue_id, job.priority, job.run_at
            limit home.free + 5
          ) first
          order by first.priority, first.run_at
          limit home.free + 5
        )
      ) wanted (place)
      cross join lateral (
        select job.ctid as place, job.job_queue_id
        from :GRAPHILE_WORKER_SCHEMA._private_jobs job
        where job.ctid = wanted.place and job.is_available
        for update skip locked
      ) job
      where job.place = wanted.place -- otherwise it was changed by now and cannot be taken
      limit home.free
    ) locked
  ) head
),
moved as materialized (
  select pg_catalog.jsonb_object_agg(place::text, job_queue_id) as queues from next where job_queue_id <> old_queue_id
),

-- part: take_next
-- Take the jobs of `next`, or unlock their queues.
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
:include moved_to
  where job.ctid = any (array(select place from next))
  returning job.*
),
released_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1::text
    and queue.id = any (array(select id from held_queue except select job_queue_id from taken))
),
-- A queue that stays busy for hours must not look like a stale lock; a minute's precision is enough.
renewed_queue as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_at = coalesce($5::timestamptz, now())
  where queue.locked_at < coalesce($5::timestamptz, now()) - interval '1 minute'
    and queue.id = any (array(select job_queue_id from taken))
)
