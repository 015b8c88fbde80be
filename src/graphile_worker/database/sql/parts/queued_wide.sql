-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: `queued` for queues that may run several jobs
-- at once. A job of a queue, its home, is moved to the row whose lock it takes: the home's own, or a free track's.
--
-- Jobs are considered as `queued` considers them. Tracks that are closed take no job, but their jobs are those of the home.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
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
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority
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
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.run_at
    limit 2 * $3 + 40
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
  ) free
  cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other.home_id not in (select id from home)
  order by other.home_id, next.priority, next.run_at
),
other_queued as materialized (
  select job.place, queue.id as job_queue_id, other.queue_id as old_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
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
