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
