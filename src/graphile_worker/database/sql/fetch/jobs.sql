-- Fetching jobs by priority.

-- statement: get_announced_jobs @routed
-- Lock the next jobs for a pool after one was announced, if all have the same priority and none waits in a named queue;
-- lock none otherwise. The fast path of get_plain_jobs, which spends a fifth of its time on finding no other priority
-- and no named queue.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      limit
-- $4 text[]       rules for flags, or null: see `flag_rules`
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns the columns of a job, unordered.
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (
  array(
    select job.ctid
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = (
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
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select $2::text::integer[])::integer[])
:include flag_rules
    order by job.run_at
    limit $3::integer
    for update skip locked
  )
)
returning
:include taken_columns

-- statement: get_plain_jobs @routed
-- Lock the next jobs like get_jobs if no job of a named queue can be next; lock none otherwise.
--
-- The fast path for the usual case: get_jobs would cost an idle worker a fifth of a millisecond more, and milliseconds
-- if many jobs wait for a busy queue.
-- Parameters and result are those of get_announced_jobs.
with recursive
:include plain
term (moment) as materialized (select coalesce($5::timestamptz, now())),
:include free_queues
:include take_plain

-- statement: get_plain_jobs_above_watermarks @routed
-- Lock the next jobs like get_plain_jobs, but from given watermarks on: the fast path of get_jobs_above_watermarks.
--
-- $1 to $5               as in get_announced_jobs
-- $6 smallint[]          ranges of priorities in ascending order: the lowest of each ...
-- $7 smallint[]          ... and the highest
-- $8 double precision[]  the run_at to start from in each range (seconds since 1970)
-- Returns the columns of a job, unordered.
with recursive
:include plain_above_watermarks
term (moment) as materialized (select coalesce($5::timestamptz, now())),
:include free_queues
:include take_plain

-- statement: get_jobs @wide @routed @wide@routed
-- Lock the next jobs for a pool: by priority, then run_at; at most one job per named queue.
-- Parameters and result are those of get_announced_jobs.
--
-- Locked rows are updated by their ctid: a join on the id makes the planner read the whole table at middle sizes. Rows
-- that are locked but not taken are unlocked unchanged when the statement ends.
with recursive
:include plain
:include queued
:include take_chosen

-- statement: get_jobs_above_watermarks @urgent @wide @routed @urgent@routed @wide@routed
-- Lock the next jobs like get_jobs, but read those without a queue from given watermarks on.
--
-- Used for a while after get_jobs was slow because it had to read past very many rows that it cannot take: jobs of tasks
-- that this pool does not have, or dead rows that a long transaction keeps from being vacuumed. Priorities with a
-- watermark are read from there, and the gaps between them from the start. The variant `urgent` takes no job of a queue
-- either that is worse than the last range.
-- Parameters and result are those of get_plain_jobs_above_watermarks.
with recursive
:include plain_above_watermarks
:include queued
:include take_chosen

-- statement: list_priorities @routed
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; and how long the
-- server takes for that, and to read past the rows that a fetch cannot take. It locks none.
--
-- A fetch may take long for other reasons: it waits for a lock on the table, or the answer for the worker. The clock starts
-- when the statement has all its locks. Reading ends at 50,000 rows, because jobs wait for the answer: there are many then.
--
-- $1 integer      how many priorities
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      how many jobs to find; 0 to find none
-- $4 text[]       rules for flags, or null: see `flag_rules`
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
:include flag_rules
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

-- statement: may_queues_be_next @routed
-- Whether a job of a named queue may be next, so that get_plain_jobs locks none.
--
-- Parameters are those of get_plain_jobs.
with recursive
unused as (select $1::text, $3::integer),
task (ids) as materialized (select $2::text::integer[]),
term (moment) as materialized (select coalesce($5::timestamptz, now())),
:include free_queues
select may_be_next from queues

-- part: take_plain
-- Part of get_plain_jobs and get_plain_jobs_above_watermarks: takes the jobs of `plain`, which is not even read if a job
-- of a named queue may be next.
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
