-- Part of write_outcomes and complete_and_take_next while there are wide queues: `take_next` for queues that may run
-- several jobs at once. Each row of a queue that became free takes a job of its home, or one that waits in the row itself.
-- The driver takes ten times as long to send an array of ten thousand numbers as one text.
task (ids) as materialized (select $3::text::integer[]),
-- Only queues of jobs that this statement has written; see `take_next`.
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
            where job.is_available and job.job_queue_id = any (array[source.id]) -- see `take_next`
              and job.run_at <= coalesce($5::timestamptz, now())
              and job.task_id = any ((select ids from task)::integer[])
              and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
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
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set
    attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now()),
    job_queue_id = coalesce(((select queues from moved) ->> job.ctid::text)::integer, job.job_queue_id)
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
