-- Ready jobs of named queues, by the indexes of the fetch.

-- part: queue_priority
-- The distinct priorities of waiting jobs of named queues, in ascending order, by one index probe each; null at the end.
queue_priority (priority) as (
  (
    select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is not null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority > last.priority
    order by job.priority limit 1
  )
  from queue_priority last where last.priority is not null
),

-- part: queued
-- Part of get_jobs and get_jobs_above_watermarks: finds the next job of each named queue, and chooses the first of these
-- and of the jobs of `plain`. `take_chosen` takes them.
:include cutoff
:include queue_priority
-- A bounded number of jobs of named queues in run order ...
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from (
    select candidate.priority from queue_priority candidate
    where
:include queue_bound
  ) queue_priority cross join lateral (
:include examined_jobs
  ) found
  limit 2 * $3 + 40
),
-- ... of which the first of each queue is taken, if the rows of the queue and the job can be locked without waiting.
head as materialized (
  select distinct on (job_queue_id) place, job_queue_id, priority, run_at
  from examined order by job_queue_id, priority, run_at
),
queued as materialized (
  select head.place, head.job_queue_id, head.priority, head.run_at
  from (select * from head order by priority, run_at) head
  cross join lateral (
    select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
    where queue.id = head.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    -- The queue's id makes this run after the lock of the queue: jobs of a queue that another pool has locked must not be
    -- locked even briefly, or that pool would skip them when it continues the queue.
    select job.ctid as place from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
:include other_queue
other_head as materialized (
  select next.place, next.job_queue_id, next.priority, next.run_at
  from (
    select id from other_queue
    limit (
      select case
        when exists (
          select from head
          join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
            on queue.id = head.job_queue_id and queue.is_available
        ) then 2 * $3 + 40
      end
    )
  ) other_queue
  join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = other_queue.id and queue.is_available
  cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other_queue.id]) -- see write_outcomes
:include first_due
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (
    select * from other_head candidate
    where
:include queue_bound
    order by priority, run_at
  ) other
  cross join lateral (
    select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
    where queue.id = other.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.ctid = other.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id from (
    select place, job_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)

-- part: queued@wide queued_wide
-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: `queued` for queues that may run several jobs
-- at once. A job of a queue, its home, is moved to the row whose lock it takes: the home's own, or a free track's.
--
-- Jobs are considered as `queued` considers them. Tracks that are closed take no job, but their jobs are those of the home.
:include cutoff
:include queue_priority
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from queue_priority cross join lateral (
:include examined_jobs
  ) found
  limit 2 * $3 + 40
),
-- The jobs of each home, the first ones first, in arrays: a join of jobs and free rows would compare each with each.
home as materialized (
  select
    home_id as id, min(priority) as priority, min(run_at) as run_at,
    pg_catalog.array_agg(place order by priority, run_at) as places,
    pg_catalog.array_agg(job_queue_id order by priority, run_at) as queues,
    pg_catalog.array_agg(priority order by priority, run_at) as priorities,
    pg_catalog.array_agg(run_at order by priority, run_at) as times
  from (
    select examined.*, coalesce(track.home_id, examined.job_queue_id) as home_id
    from examined
    left join :GRAPHILE_WORKER_SCHEMA._private_py_tracks track on track.queue_id = examined.job_queue_id
  ) examined
  group by home_id
),
queued as materialized (
  select
    job.place, member.id as job_queue_id, home.queues[member.turn] as old_queue_id,
    home.priorities[member.turn] as priority, home.times[member.turn] as run_at
  from (select * from home order by priority, run_at) home
  cross join lateral (
    select locked.id, (row_number() over ())::integer as turn
    from (
      select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
      where queue.is_available and queue.id = any (
        array(
          select home.id
          union all
          select track.queue_id from :GRAPHILE_WORKER_SCHEMA._private_py_tracks track
          where track.home_id = home.id and not track.is_closed
        )
      )
      limit pg_catalog.cardinality(home.places)
      for update skip locked
    ) locked
  ) member
  cross join lateral (
    -- The turn makes this run after the lock of the row; see `queued`.
    select job.ctid as place from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.ctid = home.places[member.turn] and job.job_queue_id = home.queues[member.turn]
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = home.places[member.turn] -- otherwise it was changed by now and cannot be taken
  limit $3
),
:include other_queue
-- Of each other home with a free row, the first job.
other_head as materialized (
  select distinct on (other.home_id) next.place, other.id as queue_id, other.home_id, next.priority, next.run_at
  from (
    select other_queue.id, coalesce(track.home_id, other_queue.id) as home_id
    from (
      select id from other_queue
      limit (
        select case
          when exists (
            select from home
            join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = home.id and queue.is_available
          ) then 2 * $3 + 40
        end
      )
    ) other_queue
    left join :GRAPHILE_WORKER_SCHEMA._private_py_tracks track on track.queue_id = other_queue.id
    where other_queue.id is not null
  ) other
  cross join lateral (
:include free_row
  ) free
  cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other.id]) -- see write_outcomes
:include first_due
  ) next
  where other.home_id not in (select id from home)
  order by other.home_id, next.priority, next.run_at
),
other_queued as materialized (
  select job.place, queue.id as job_queue_id, other.queue_id as old_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
:include free_row
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.ctid = other.place and job.job_queue_id = other.queue_id and queue.id is not null
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id, old_queue_id from (
    select place, job_queue_id, job_queue_id as old_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)

-- part: free_row
    -- A free row of the home of `other`.
    select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from :GRAPHILE_WORKER_SCHEMA._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1

-- part: cutoff
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),

-- part: examined_jobs
    -- Part of `examined`: the jobs of one `queue_priority`, up to the cutoff.
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority
:include up_to_cutoff
      and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
    order by job.run_at
    limit 2 * $3 + 40

-- part: up_to_cutoff
      -- What is due of one `queue_priority`, and not after the cutoff.
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        (
          select case
            when queue_priority.priority < cutoff.priority then 'infinity'
            when queue_priority.priority = cutoff.priority then cutoff.run_at
            else '-infinity'
          end
          from cutoff
        )
      )

-- part: other_queue
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
other_queue (id) as (
  (
    select job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is not null
      and (select count(*) from examined) >= 2 * $3 + 40 and not exists (select from queued)
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from other_queue last where last.id is not null
),

-- part: first_due
      -- The end of a look into one queue: its first job that is due and that this worker can run.
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
    order by job.job_queue_id, job.priority, job.run_at
    limit 1

-- part: queue_bound
true -- any priority

-- part: queue_bound@urgent
candidate.priority <= ($7::smallint[])[pg_catalog.cardinality($7::smallint[])] -- the last range

-- part: moved_to
-- Only while there are wide queues, a job that is taken may be moved to another row of its queue.

-- part: moved_to@wide
-- To the row of its queue that `moved` has for the job.
  , job_queue_id = coalesce(((select queues from moved) ->> job.ctid::text)::integer, job.job_queue_id)

-- part: free_queues
-- Whether a job of a named queue may be next: one of the queues with waiting jobs is free and has one that is due and that
-- this worker can run, or there are too many queues or jobs to check. `term` has the time.
:include waiting_queue
queues (may_be_next) as materialized (
  select
    pg_catalog.count(waiting.id) > 10
    or coalesce(
      bool_or(
        queue.is_available
        and exists (
          select
          from (
            select next.task_id, next.run_at, next.flags, pg_catalog.row_number() over () as nth
            from (
              select job.task_id, job.run_at, job.flags
              from :GRAPHILE_WORKER_SCHEMA._private_jobs job
              where job.is_available and job.job_queue_id = any (array[waiting.id]) -- see write_outcomes
              order by job.job_queue_id, job.priority, job.run_at
              limit 100
            ) next
          ) job
          where job.nth = 100::bigint or (
            job.run_at <= (select moment from term)
            and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
          )
        )
      ),
      false
    )
  from (select id from waiting_queue limit 11) waiting
  left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = waiting.id
)

-- part: waiting_queue
-- The named queues with waiting jobs, in ascending order, by one index probe each; null at the end.
waiting_queue (id) as (
  (
    select job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
