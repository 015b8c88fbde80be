-- Pause a named queue, or change the terms of its pause. Its row looks locked to every runtime, and to their search for
-- stale locks it looks as if locked in the future. A job of the queue that is running goes on: when it ends, its worker
-- frees the queue only if locked_by is its own pool.
--
-- $1 text              queue name
-- $2 timestamptz       end of the pause, or null
-- $3 double precision  seconds until its end, or null; with neither it has no end
-- $4 text              reason, or null
-- Returns reason, since and until (seconds since 1970).
with
-- In the order of a resume, which locks the row of the pause before the queue.
earlier as materialized (
  select paused.queue_id
  from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = paused.queue_id
  where queue.queue_name = $1::text
  for update of paused
),
known as materialized (
  select id, locked_by
  from :GRAPHILE_WORKER_SCHEMA._private_job_queues
  where queue_name = $1::text and (select count(*) from earlier) >= 0
  for update
),
locked as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = 'py:hold', locked_at = '9999-01-01 00:00:00+00'
  from known
  where queue.id = known.id
  returning queue.id, known.locked_by as holder
),
created as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name, locked_by, locked_at)
  select $1::text, 'py:hold', '9999-01-01 00:00:00+00'::timestamptz
  where not exists (select from known)
  on conflict (queue_name) do update set locked_by = excluded.locked_by, locked_at = excluded.locked_at
  returning id
),
held as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds as paused (queue_id, until, reason, holder)
  select
    queue.id, coalesce($2::timestamptz, now() + $3::double precision * interval '1 second'), $4::text,
    nullif(queue.holder, 'py:hold')
  from (select id, holder from locked union all select id, null from created) queue
  on conflict (queue_id) do update set
    until = excluded.until,
    reason = excluded.reason,
    held_at = case when paused.until <= now() then excluded.held_at else paused.held_at end,
    holder = coalesce(excluded.holder, paused.holder),
    job_id = null
  returning reason, held_at, until
),
notified as materialized (select pg_notify('worker:py', '{"pauses":1}'))
select reason, date_part('epoch', held_at) as since, date_part('epoch', until) as until
from held cross join notified
