-- Pauses of queues and of tasks.

-- statement: pause_queue
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

-- statement: pause_task
-- Pause a task, or change the terms of its pause. Pauses that are over are deleted.
--
-- $1 text              its identifier; empty for every task
-- $2 timestamptz       end of the pause, or null
-- $3 double precision  seconds until its end, or null; with neither it has no end
-- $4 text              reason, or null
-- Returns reason, since and until (seconds since 1970).
with
over as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_pauses where until <= now() and task <> $1::text
),
paused as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_pauses as pause (task, until, reason)
  values ($1::text, coalesce($2::timestamptz, now() + $3::double precision * interval '1 second'), $4::text)
  on conflict (task) do update set
    until = excluded.until,
    reason = excluded.reason,
    paused_at = case when pause.until <= now() then excluded.paused_at else pause.paused_at end
  returning reason, paused_at, until
),
notified as materialized (select pg_notify('worker:py', '{"pauses":1}'))
select reason, date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from paused cross join notified

-- statement: resume_task
-- End the pause of a task.
--
-- $1 text  its identifier; empty for the pause of every task
-- Returns whether it was paused.
with
resumed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_pauses where task = $1::text
  returning until
),
notified as materialized (select pg_notify('worker:py', '{"pauses":1}') from resumed)
select exists (select from resumed where until is null or until > now()) as was_paused
from (select count(*) from notified) always

-- statement: paused_queue
-- The row of a queue that is paused. Its row stays locked until the end of the transaction.
--
-- $1 text  queue name
-- Returns queue_id and holder.
select paused.queue_id, paused.holder
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = paused.queue_id
where queue.queue_name = $1::text and paused.job_id is null
for update of paused

-- statement: list_pauses
-- What is paused: everything first, then tasks, then named queues.
-- Returns kind (task or queue), name (empty for every task), reason, since and until (seconds since 1970).
select
  'task' as kind, task as name, reason,
  date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from :GRAPHILE_WORKER_SCHEMA._private_py_pauses
where until is null or until > now()
union all
select 'queue', queue.queue_name, paused.reason, date_part('epoch', paused.held_at), date_part('epoch', paused.until)
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = paused.queue_id
where paused.job_id is null
order by 1 desc, 2

-- statement: due_pauses
-- Paused queues whose pause is over, or whose row is gone, as far as no other session ends them. Their rows stay locked
-- until the end of the transaction.
-- Returns queue_id and holder.
select paused.queue_id, paused.holder
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
where paused.job_id is null and (
  paused.until <= now()
  or not exists (select from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue where queue.id = paused.queue_id)
)
order by paused.queue_id
limit 100
for update skip locked

-- statement: end_pauses
-- Resume queues: back to the pool that still runs a job of it, so that the queue stays serial, else free.
--
-- $1 integer[]  queue ids
-- $2 bigint[]   ids of their jobs that are running; this transaction has locked their rows
-- Returns how many queues were paused.
with
running as materialized (
  select distinct on (job_queue_id) id, job_queue_id, locked_by, locked_at
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($2::bigint[])
  order by job_queue_id, locked_at desc
),
resumed as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = running.locked_by, locked_at = running.locked_at
  from pg_catalog.unnest($1::integer[]) as wanted (id) left join running on running.job_queue_id = wanted.id
  where queue.id = wanted.id and queue.locked_by = 'py:hold'
  returning queue.id
),
returned as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  set until = now(), job_id = running.id
  from running
  where paused.queue_id = running.job_queue_id and paused.queue_id = any ($1)
  returning paused.queue_id
),
ended as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  where paused.queue_id = any ($1) and paused.queue_id not in (select job_queue_id from running)
  returning paused.queue_id
),
told_all as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from resumed having count(*) > 0
),
told_us as materialized (select pg_notify('worker:py', '{"pauses":1}'))
select (select count(*) from returned) + (select count(*) from ended) as queues
from told_us left join told_all on true

-- statement: settle_queues
-- Look after queues that were resumed while a job of them was running. A write that began before the queue was resumed
-- and ended the job afterwards has not seen that the queue belongs to its pool again, and has not freed it.
--
-- Returns how many queues were freed.
with
-- One snapshot: a queue that is locked while none of its jobs is, stays locked. A pause that another session settles, or
-- resumes, is left to it: to wait for it here would be a deadlock.
settled as materialized (
  select paused.queue_id, queue.locked_by, queue.locked_at
  from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = paused.queue_id
  where paused.job_id is not null
    and not exists (
      select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.id = paused.job_id and job.locked_by = paused.holder
    )
  order by paused.queue_id
  for update of paused skip locked
),
stuck as materialized (
  select settled.queue_id, settled.locked_by, settled.locked_at
  from settled
  where settled.locked_at is not null and settled.locked_by <> 'py:hold'
    and not exists (
      select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.job_queue_id = settled.queue_id and job.locked_at is not null
    )
),
freed as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = null, locked_at = null
  from stuck
  where queue.id = stuck.queue_id and queue.locked_by = stuck.locked_by and queue.locked_at = stuck.locked_at
  returning queue.id
),
ended as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
  using settled
  where paused.queue_id = settled.queue_id and paused.job_id is not null
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from freed having count(*) > 0
)
select count(*) as queues from freed left join notified on true
