-- Series: the jobs of named queues in held batches. A queue is locked in the ordinary way, and committed, before any of its
-- jobs; they run one after the other in the transaction that has locked their rows, and its end unlocks the queue.

-- statement: take_queues @routed
-- Lock the named queues whose jobs are next: by priority and run_at of the first job of each that this worker can run.
--
-- Only queues before the first job without a queue, and before the first queue whose next job must not be held: one with a
-- key, or a recovered one. An ordinary fetch takes those.
--
-- If no more queues have waiting jobs than are wanted, it looks at the first job of each. Otherwise it reads jobs in run order
-- until it has found so many queues.
--
-- $1 text         pool id
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      how many queues
-- $4 text[]       rules for flags, or null: see `flag_rules`
-- $5 timestamptz  the worker's time, or null for the server's
-- $6 integer      how many jobs to read at most
-- $7 text         the last error of a recovered job
-- Returns the id of each queue in this order, the priority of its first job, when it was locked, the place of its row, and
-- whether these are all ready jobs that are not in queues which are busy.
with recursive
:include terms
:include queue_priority
:include plain_priority
,
-- The first ready job without a queue. If the first hundred are all for other workers, it may be any of them.
cutoff as materialized (
  select job.priority, job.run_at
  from (
    select due.*, pg_catalog.row_number() over () as nth
    from (
      select found.*
      from plain_priority cross join lateral (
        select job.task_id, job.flags, job.priority, job.run_at
        from :GRAPHILE_WORKER_SCHEMA._private_jobs job
        where job.is_available and job.job_queue_id is null
          and job.priority = plain_priority.priority and job.run_at <= coalesce($5::timestamptz, now())
          and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
        order by job.run_at
        limit 100
      ) found
      limit 100
    ) due
  ) job
  where job.nth = 100::bigint or (
    job.task_id = any ((select ids from task)::integer[])
:include flag_rules
  )
  order by job.nth
  limit 1
),
:include waiting_queue
few as materialized (select id from waiting_queue where id is not null limit $3::integer + 1),
-- Read only as far as `head` asks for it.
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.is_barrier
  from queue_priority cross join lateral (
    select
      job.ctid as place, job.job_queue_id, job.priority,
      job.key is not null or coalesce(job.last_error = $7::text, false) as is_barrier
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority = queue_priority.priority
:include up_to_cutoff
      and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
    order by job.run_at
    limit $6::integer
  ) found
  limit case when (select count(*) from few) > $3::bigint then $6 else 0 end
),
head as materialized (
  select found.id, found.priority, found.is_barrier, pg_catalog.row_number() over () as nth
  from (
    (
      select queue.id, first.priority, first.is_barrier
      from few
      cross join lateral (
        select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
        where queue.id = few.id and queue.is_available and (select count(*) from few) <= $3::bigint
        for update skip locked
      ) queue
      cross join lateral (
        select
          job.priority, job.run_at,
          job.key is not null or coalesce(job.last_error = $7::text, false) as is_barrier
        from :GRAPHILE_WORKER_SCHEMA._private_jobs job
        where job.is_available and job.job_queue_id = any (array[queue.id]) -- see write_outcomes
:include first_due
      ) first
      where (first.priority, first.run_at) <= (select priority, run_at from cutoff) is not false
      order by first.priority, first.run_at
    )
    union all
    (
      select queue.id, examined.priority, examined.is_barrier
      from examined
      cross join lateral (
        select queue.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
        where queue.id = examined.job_queue_id and queue.is_available
        for update skip locked
      ) queue
      cross join lateral (
        select job.ctid as place
        from :GRAPHILE_WORKER_SCHEMA._private_jobs job
        where job.is_available and job.job_queue_id = any (array[queue.id]) -- see write_outcomes
:include first_due
      ) first
      where first.place = examined.place
      limit $3
    )
  ) found
),
barrier (nth) as materialized (select pg_catalog.min(nth) from head where is_barrier),
chosen as materialized (
  select head.id, head.priority, head.nth from head cross join barrier where head.nth < barrier.nth is not false
),
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
  set locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
  where queue.id = any (array(select id from chosen))
  returning queue.id, queue.locked_at, queue.ctid::text as place
)
select
  chosen.id, chosen.priority, taken.locked_at, taken.place,
  barrier.nth is null and not exists (select from cutoff)
  and case
    when (select count(*) from few) <= $3::bigint then true
    when (select count(*) from chosen) < $3::bigint then (select count(*) from examined) < $6::bigint
    else false
  end as is_all
from chosen join taken on taken.id = chosen.id cross join barrier
order by chosen.nth

-- statement: get_series @routed
-- Choose the next jobs of queues that this pool has locked, and lock their rows until the end of the transaction, without
-- writing to them. A series has jobs of one priority, and ends before a job with a key or a recovered one: see `keyed`.
--
-- $1 to $4       as in get_held_jobs
-- $5 integer[]   ids of the queues
-- $6 smallint[]  the priority of the jobs of each
-- $7 integer     how many jobs of each at most
-- $8 text        the last error of a recovered job
-- Returns the columns of a job as if it were locked; queue by queue, each in run order.
with
:include held_terms
first_keyed (place) as (select null::text),
candidate as materialized (
  select found.place, taken.nth, found.turn, found.is_barrier
  from unnest($5::integer[], $6::smallint[]) with ordinality as taken (id, priority, nth)
  cross join lateral (
    select job.place, job.is_barrier, pg_catalog.row_number() over () as turn
    from (
      select job.ctid as place, job.key is not null or coalesce(job.last_error = $8::text, false) as is_barrier
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.is_available and job.job_queue_id = any (array[taken.id]) -- see write_outcomes
        and job.priority = taken.priority
        and job.run_at <= (select moment from term)
        and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
      order by job.job_queue_id, job.priority, job.run_at
      limit $7::integer
    ) job
  ) found
),
barrier as materialized (
  select nth, pg_catalog.min(turn) as turn from candidate where is_barrier group by nth
)
select
:include held_columns
from (
  select candidate.place, candidate.nth, candidate.turn
  from candidate
  where not exists (
    select from barrier where barrier.nth = candidate.nth and barrier.turn <= candidate.turn
  )
  order by candidate.nth, candidate.turn
  limit $1::integer
) candidate
cross join lateral (
  select job.ctid as place, job.*
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.ctid = candidate.place and job.is_available and job.job_queue_id is not null and job.key is null
  for no key update skip locked
) job
where job.place = candidate.place -- otherwise it was changed by now

-- statement: are_queues_taken
-- Whether queues are still locked as `take_queues` has locked them. Ask it after `get_series` has locked their jobs: until then
-- an operator may pause and resume a queue, and another worker may lock it. A later resume waits for these jobs.
--
-- $1 text         pool id
-- $2 timestamptz  when they were locked
-- $3 text[]       the places of their rows. A changed row has another place, and its old one may be used again.
select count(*) = pg_catalog.cardinality($3::text[])
from :GRAPHILE_WORKER_SCHEMA._private_job_queues
where ctid = any ($3::text[]::tid[]) and locked_by = $1::text and locked_at = $2::timestamptz

-- statement: end_series
-- Delete completed jobs of a held batch, whose rows this transaction has locked, and unlock queues: in one transaction, so that
-- no worker that finds a queue unlocked finds one of these jobs.
--
-- $1 text       pool id
-- $2 bigint[]   job ids
-- $3 integer[]  queues that no job of this pool keeps
with unlocked as (
  update :GRAPHILE_WORKER_SCHEMA._private_job_queues
  set locked_by = null, locked_at = null
  where id = any ($3::integer[]) and locked_by = $1::text
)
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = any ($2::bigint[])

-- statement: settle_series
-- Delete completed jobs of a held batch whose transaction was lost, if their queues are still locked as the batch has locked
-- them: then no other worker can have run them.
--
-- $1 text         pool id
-- $2 timestamptz  when the queues were locked
-- $3 bigint[]     job ids
-- $4 integer[]    the attempts that each would have now
-- Returns id and was_deleted: true, or null if another worker has or had it; false if its row, or that of its queue, cannot be
-- locked now: a transaction has locked it, perhaps the lost one. No row for a job that is gone.
with
wanted as materialized (
  select job.id, job.job_queue_id
  from unnest($3::bigint[], $4::integer[]) as wanted (id, attempts)
  join :GRAPHILE_WORKER_SCHEMA._private_jobs job
    on job.id = wanted.id
    and (job.locked_by = $1::text or (job.locked_at is null and job.attempts::integer = wanted.attempts - 1))
  join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
    on queue.id = job.job_queue_id and queue.locked_by = $1::text and queue.locked_at = $2::timestamptz
),
queue as materialized (
  select id from :GRAPHILE_WORKER_SCHEMA._private_job_queues
  where id = any (array(select job_queue_id from wanted)) and locked_by = $1::text and locked_at = $2::timestamptz
  for update skip locked
),
free as materialized (
  select job.id
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.id = any (array(select id from wanted)) and job.job_queue_id in (select id from queue)
  for update skip locked
),
deleted as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any (array(select id from free))
  returning id
)
select job.id, case when deleted.id is not null then true when wanted.id is not null then false end as was_deleted
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
left join wanted on wanted.id = job.id
left join deleted on deleted.id = job.id
where job.id = any ($3::bigint[])
