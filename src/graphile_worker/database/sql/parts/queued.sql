-- Part of get_jobs and get_jobs_above_watermarks: finds the next job of each named queue, and chooses the first of these
-- and of the jobs of `plain`. `take_chosen` takes them.
--
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
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
-- A bounded number of jobs of named queues in run order ...
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from (
    select candidate.priority from queue_priority candidate
    where
:include queue_bound
  ) queue_priority cross join lateral (
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
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
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
