-- What a pool looks for: requests, pauses and cancelled jobs.

-- statement: look @unasked
-- What operators ask of a pool. Cheap while they ask for nothing: the tables are empty.
--
-- $1 text  pool id
-- Returns rows with kind, name, id, reason, since and until (seconds since 1970), seconds (until the end, or null) and number:
-- task    a paused task: its identifier, or empty for every task
-- queue   a paused queue: its name and id; seconds is zero or less if the pause is over and the queue is still locked
-- ending  the id of a queue that was resumed while a job of it was running
-- wide    if there are wide queues
-- cancel  the id of a job of this pool that was cancelled
-- leftover  there are cancelled jobs that have ended otherwise, or are gone; their workers had time to deal with them
-- stop, quiet  the pool is to shut down, or to fetch no more jobs
-- stack   someone wants the stack of a job: the id of the request, and as name the id of the job
-- concurrency  a lane is to run another number of jobs at once: the id of the request, and as name that of the lane
-- asked   there are other cancelled jobs, which may become leftovers
select
  'task' as kind, task as name, null::bigint as id, reason,
  date_part('epoch', paused_at) as since, date_part('epoch', until) as until,
  date_part('epoch', until - now()) as seconds, null::integer as number
from :GRAPHILE_WORKER_SCHEMA._private_py_pauses
where until is null or until > now()
union all
select
  case when paused.job_id is null then 'queue' else 'ending' end, queue.queue_name, paused.queue_id, paused.reason,
  date_part('epoch', paused.held_at), date_part('epoch', paused.until), date_part('epoch', paused.until - now()),
  null
from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds paused
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = paused.queue_id
union all
select 'wide', null, null, null, null, null, null, null
where exists (select from :GRAPHILE_WORKER_SCHEMA._private_py_tracks)
union all
-- No joins with the jobs: without statistics about cancelled jobs, the planner might read all jobs for one.
select
  'cancel', null, job.id,
  (select cancel.reason from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel where cancel.job_id = job.id),
  null, null, null, null
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
where job.id = any (array(select cancel.job_id from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel))
  and job.locked_by = $1::text
:include requested
union all
select
  case when exists (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel
    where cancel.asked_at < now() - interval '2 seconds' and (
      select job.locked_at from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.id = cancel.job_id
    ) is null
  ) then 'leftover' else 'asked' end,
  null, null, null, null, null, null, null
where exists (select from :GRAPHILE_WORKER_SCHEMA._private_py_cancels)

-- statement: wait
-- Wait on the server.
-- $1 double precision  seconds
select pg_catalog.pg_sleep($1::double precision)

-- statement: running_jobs
-- The jobs of queues that the pools which held these queues may still be running. Scans the jobs table.
--
-- $1 integer[]  queue ids
-- $2 text[]     the pool that held each queue
-- Returns their ids.
select job.id
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
join unnest($1::integer[], $2::text[]) as held (queue_id, holder)
  on held.queue_id = job.job_queue_id and held.holder = job.locked_by
where job.locked_at is not null
order by job.id

-- statement: wait_for_held_jobs
-- Wait until no held batch has jobs of these queues: its end locks the one that still runs in the ordinary way. Only rows that
-- some transaction has locked are locked here; a batch has the first ones of a queue.
--
-- $1 integer[]  queue ids
-- Returns their ids.
select held.id
from pg_catalog.unnest($1::integer[]) as queue (id)
cross join lateral (
  select job.id
  from (
    select job.ctid as place
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id = any (array[queue.id]) -- see write_outcomes
    order by job.job_queue_id, job.priority, job.run_at
    limit 4000
  ) first
  join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.ctid = first.place
  where job.xmax <> 0
  for share of job
) held

-- statement: cancelled_among
-- Which of these jobs were cancelled while a worker had them locked. Asked after every write of permanent failures, so it
-- reads one index and nothing else.
--
-- $1 bigint[]  job ids
-- Returns the ids.
select job_id from :GRAPHILE_WORKER_SCHEMA._private_py_cancels where job_id = any ($1::bigint[])

-- statement: cancel_reasons
-- Which of these jobs were cancelled while a worker had them locked.
--
-- $1 text[]  job ids as texts
-- Returns job_id and reason.
select job_id, reason from :GRAPHILE_WORKER_SCHEMA._private_py_cancels where job_id = any ($1::text[]::bigint[])

-- part: requested
union all
select
  request.kind, coalesce(request.job_id::text, asked.document ->> 'lane'::text), request.id, request.reason, null, null, null,
  (asked.document ->> 'concurrency'::text)::integer
from :GRAPHILE_WORKER_SCHEMA._private_py_requests request
-- By name, because an earlier version of own_objects/control has not all of these columns.
cross join lateral (select pg_catalog.to_jsonb(request) as document) asked
where request.pool_id = $1::text and request.answer is null

-- part: requested@unasked
-- Without the table for requests, or the right to read it.
