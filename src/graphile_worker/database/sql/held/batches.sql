-- Held batches: jobs that run in the transaction that has fetched them.

-- statement: begin_batch
-- Begin the transaction of a held batch, in one round trip.
--
-- Its end deletes and updates rows. The lock for that comes first. If this transaction began with a weaker lock,
-- another session (REINDEX, for example) could get a lock that conflicts with the stronger one before the batch ends, and
-- the two would deadlock.
begin;
lock table :GRAPHILE_WORKER_SCHEMA._private_jobs in row exclusive mode

-- statement: transaction_number
-- The number of this transaction, by which others see whether it is open.
select txid_current()

-- statement: has_backlog
-- Whether many jobs of the usual priority are ready, of named queues or of none: a worker that starts beside them holds
-- batches soon.
--
-- $1 bigint  how many are many
select count(*) = $1::bigint
from (
  (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is null and priority = 0::smallint and run_at <= now()
    limit $1
  )
  union all
  (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is not null and priority = 0::smallint and run_at <= now()
    limit $1
  )
  limit $1
) waiting

-- statement: get_held_jobs @routed
-- Choose the next jobs like get_plain_jobs and lock their rows until the end of the transaction, without writing to them;
-- choose none if a job of a named queue may be next, and none with a key: see `keyed`.
--
-- Due by the time of the statement: now() is that of the transaction, and a job may have been added since that began.
--
-- $1 integer      limit
-- $2 text         ids of the tasks that this pool can run
-- $3 timestamptz  the worker's time, or null for the server's
-- $4 text[]       rules for flags, or null: see `flag_rules`
-- Returns the columns of a job as if it were locked, in run order.
with recursive
:include held_terms
:include plain_priority
,
:include keyed
:include free_queues
select
:include held_columns
from plain_priority as range (low) cross join lateral (
  select job.*
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.is_available and job.job_queue_id is null
    and job.key is null and job.priority = range.low
:include up_to_keyed
) job
where not (select may_be_next from queues)
limit $1

-- statement: get_held_jobs_above_watermarks @routed
-- Choose the next jobs like get_held_jobs, but from given watermarks on; see get_jobs_above_watermarks.
--
-- $1 to $4               as in get_held_jobs
-- $5 smallint[]          ranges of priorities in ascending order: the lowest of each ...
-- $6 smallint[]          ... and the highest
-- $7 double precision[]  the run_at to start from in each range (seconds since 1970)
-- Returns the columns of a job as if it were locked, in run order.
with recursive
:include held_terms
:include keyed
:include free_queues
select
:include held_columns
from unnest($5::smallint[], $6::smallint[], $7::double precision[]) as range (low, high, since)
cross join lateral (
  select * from (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where range.low = range.high and job.is_available and job.job_queue_id is null
      and job.key is null and job.priority = range.low and job.run_at >= to_timestamp(range.since)
:include up_to_keyed
  ) known
  union all
  select * from (
    select job.*
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where range.low < range.high and job.is_available and job.job_queue_id is null
      and job.key is null
      and job.priority between range.low and least(range.high, (select priority from last_keyed))
      and job.run_at <= coalesce($3::timestamptz, statement_timestamp())
      and (
        job.priority < (select priority from last_keyed) is not false
        or job.run_at < (select run_at from last_keyed)
      )
      and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.priority, job.run_at
    limit $1::integer
    for no key update skip locked
  ) gap
) job
where not (select may_be_next from queues)
limit $1

-- statement: get_keyed_jobs @routed
-- Lock the jobs with a key that come before the last job of a held batch, which has locked none of them: see `keyed`.
--
-- $1 to $5             as in get_announced_jobs
-- $6 smallint          the priority of the last job of the batch
-- $7 double precision  its run_at (seconds since 1970)
-- Returns the columns of a job, unordered.
with recursive
:include terms
:include keyed_steps
keyed as materialized (
  select found.place
  from (select task_id, priority from keyed_step limit 50) step
  cross join lateral (
    select job.ctid as place
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.key is not null
      and job.task_id = any (array[step.task_id]) -- see write_outcomes
      and job.priority = step.priority
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        case
          when step.priority < $6::smallint then 'infinity'::timestamptz
          else to_timestamp($7::double precision)
        end
      )
:include flag_rules
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.task_id, job.priority, job.run_at
    limit $3::integer
    for update skip locked
  ) found
  where step.task_id = any ((select ids from task)::integer[]) and step.priority <= $6
  limit $3
)
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from keyed))
returning
:include taken_columns

-- statement: lock_jobs
-- Lock jobs of a held batch as a fetch would have done: they outlast the batch.
--
-- $1 text         pool id
-- $2 bigint[]     job ids
-- $3 timestamptz  the worker's time, or null for the server's
update :GRAPHILE_WORKER_SCHEMA._private_jobs
set attempts = attempts + 1, locked_by = $1::text, locked_at = coalesce($3::timestamptz, now())
where id = any ($2::bigint[])

-- statement: fail_jobs
-- Write failed attempts of jobs of a held batch that are retried, with nothing to keep in the history: what write_outcomes
-- does after lock_jobs, in one update. The attempt is counted here, and the back-off begins now: now() is when the batch began.
--
-- $1 bigint[]  job ids
-- $2 text[]    their error messages
-- $3 bigint[]  their max_attempts, which replace the default of 25; empty if none has any
-- $4 float8[]  seconds until they run again, null for the back-off; empty if none has any
-- Returns id and run_at of each.
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set
  last_error = failure.message,
  max_attempts = case
    when job.max_attempts <> 25::smallint then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end,
  (attempts, run_at) = (
    select
      job.attempts,
      greatest(statement_timestamp(), job.run_at) + interval '1 second' * coalesce(failure.delay, back_off.seconds)
    from (select job.run_at, job.attempts + 1::smallint as attempts) as job
:include back_off
  )
from unnest($1::bigint[], $2::text[], $3::bigint[], $4::double precision[])
  as failure (job_id, message, own_max_attempts, delay)
where job.id = any (array[failure.job_id]) -- see write_outcomes
returning job.id, job.run_at

-- statement: keep_jobs
-- Delete completed jobs of a held batch and insert them into the history: what write_and_keep does after lock_jobs.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- $3 float8[]  seconds that the attempt took
-- $4 text[]    results (JSON text), or null; empty if there are none
-- $5 text[]    redacted payloads to keep (JSON text), or null for those of the rows; empty if there are none
-- $6 float8    seconds to keep them
-- $7 boolean   whether to keep the payload
-- $8 bigint[]  jobs that are announced
-- $9 text      name of the schema
-- Returns how many were deleted.
with
kept as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  using unnest($2::bigint[], $3::double precision[], $4::text[], $5::text[]) as ran (job_id, seconds, result, payload)
  where job.id = any (array[ran.job_id]) -- see write_outcomes
  returning
    job.id, job.task_id, job.job_queue_id, job.key, job.priority, job.attempts + 1::smallint as attempts, job.max_attempts,
    job.created_at, job.run_at, job.flags,
    case when $7::boolean then coalesce(ran.payload::json, job.payload) end as payload,
    ran.seconds, ran.result, 'completed' as state, $6::double precision as keep_seconds
),
:include kept_end
announced as materialized (
  select pg_notify(
    'worker:ended',
    pg_catalog.json_build_object(
      'schema', $9::text, 'ids', case when count(*) <= 300 then pg_catalog.json_agg(id) end
    )::text
  )
  from kept
  where pg_catalog.cardinality($8::bigint[]) > 0 and id = any ($8)
  having count(*) > 0
)
select (select count(*) from kept) from (select) always left join announced on true

-- statement: settle_jobs
-- Lock jobs of a held batch whose transaction was lost, as far as they are still as the batch found them.
--
-- $1 text           pool id
-- $2 bigint[]       job ids
-- $3 integer[]      the attempts that each would have now
-- $4 timestamptz    the worker's time, or null for the server's
-- $5 timestamptz[]  the run_at that fail_jobs gave each, if it did
-- Returns id and is_ours: true if this pool has locked it now; false if it is free, but its row cannot be locked now: a
-- transaction has locked it, perhaps the lost one, or a policy hides it from updates; null if another worker has or had
-- it, or its queue, or a trigger keeps its row. No row for a job that is gone. The third column is whether it is as fail_jobs
-- left it: another worker's failure has another run_at.
with
wanted as materialized (
  select wanted.id, wanted.attempts, wanted.run_at
  from unnest($2::bigint[], $3::integer[], $5::timestamptz[]) as wanted (id, attempts, run_at)
),
free as materialized (
  select job.id
  from wanted join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = wanted.id
  where job.locked_at is null and job.attempts::integer = wanted.attempts - 1
    and (
      job.job_queue_id is null
      or exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
        where queue.id = job.job_queue_id and queue.locked_by = $1::text
      )
    )
  for update of job skip locked
),
taken as (
  update :GRAPHILE_WORKER_SCHEMA._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($4::timestamptz, now())
  where job.id = any (array(select id from free))
  returning job.id
)
select
  job.id,
  case
    when job.locked_by = $1::text or taken.id is not null then true
    when job.locked_at is null and job.attempts::integer = wanted.attempts - 1
      and job.id <> all (array(select id from free))
      and (
        job.job_queue_id is null
        or exists (
          select from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
          where queue.id = job.job_queue_id and queue.locked_by = $1::text
        )
      )
      then false
  end as is_ours,
  job.locked_at is null and job.attempts::integer = wanted.attempts and job.run_at = wanted.run_at as is_failed
from wanted
join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = wanted.id
left join taken on taken.id = job.id

-- statement: delete_jobs
-- Delete completed jobs of a held batch, whose rows this transaction has locked.
--
-- $1 bigint[]  job ids
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = any ($1::bigint[])

-- statement: delete_adjacent_jobs
-- Delete completed jobs of a held batch whose ids are close together: one index scan replaces a lookup for each.
--
-- $1 bigint[]  job ids
-- $2 bigint    the lowest of them
-- $3 bigint    the highest of them
-- `is true`: see complete_adjacent_jobs.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
where id between $2::bigint and $3::bigint
  and (id in (select pg_catalog.unnest($1::bigint[]))) is true

-- part: held_terms
-- Part of every fetch of a held batch, like `terms`.
task (ids) as materialized (select $2::text::integer[]),
term (moment) as materialized (select coalesce($3::timestamptz, statement_timestamp())),
-- A snapshot lists no transaction with an id above the highest one that has ended, and those have the latest batches. So the
-- next 32 ids count as running too. Only here: in the transaction of a caller one of them could be our own.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid
    from (
      select txid_snapshot_xip(snapshot)
      from txid_current_snapshot() as snapshot
      union all
      select generate_series(txid_snapshot_xmax(snapshot), txid_snapshot_xmax(snapshot) + 31::bigint)
      from txid_current_snapshot() as snapshot
    ) as running (number)
  )
),

-- part: held_columns
  -- The columns of `taken_columns` for a job that is held, as if it were locked. Held jobs have no key: in its place is
  -- where the first job with a key comes, or null, so that nothing more has to be sent and read for each job.
  job.id, job.payload::text, job.priority, date_part('epoch', job.run_at), job.attempts + 1, job.max_attempts,
  job.last_error, date_part('epoch', nullif(job.created_at, job.run_at)),
  date_part('epoch', nullif(job.updated_at, job.created_at)),
  (select place from first_keyed), date_part('epoch', coalesce($3::timestamptz, now())), job.revision, job.flags::text, job.task_id,
  job.job_queue_id

-- part: keyed_steps
-- Part of every statement that looks for jobs with a key: the tasks and priorities of those that wait without a queue, by
-- one index probe each. Whether they are due, and whether this worker has the task, does not matter here, so there may be
-- many: statements stop after 50.
keyed_step (task_id, priority) as (
  (
    select job.task_id, job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.key is not null
    order by job.task_id, job.priority limit 1
  )
  union all
  select next.task_id, next.priority
  from keyed_step last cross join lateral (
    select job.task_id, job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.key is not null
      and (job.task_id, job.priority) > (last.task_id, last.priority)
    order by job.task_id, job.priority limit 1
  ) next
),

-- part: keyed
-- Part of every fetch of a held batch: jobs with a key that come between those of the batch. A session that replaces or
-- removes such a job must not wait for the batch, so it locks none of them. An ordinary fetch takes those that come before
-- the batch's last job (get_keyed_jobs). For that to be few, the batch ends before the last of them if more than a tenth
-- of it have one, and has no job at all if too many tasks and priorities have some.
:include keyed_steps
keyed as materialized (
  select found.priority, found.run_at
  from (select task_id, priority from keyed_step limit 50) step
  cross join lateral (
    select job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.key is not null
      and job.task_id = any (array[step.task_id]) -- see write_outcomes
      and job.priority = step.priority and job.run_at <= coalesce($3::timestamptz, statement_timestamp())
:include flag_rules
    order by job.task_id, job.priority, job.run_at
    limit $1::integer / 10 + 1
  ) found
  where step.task_id = any ((select ids from task)::integer[])
  order by found.priority, found.run_at
  limit $1 / 10 + 1
),
first_keyed (place) as materialized (
  select priority::text || ' ' || date_part('epoch', run_at)::text from keyed limit 1
),
last_keyed (priority, run_at) as materialized (
  select (-32768)::smallint, '-infinity'::timestamptz
  where (select pg_catalog.count(task_id) from (select task_id from keyed_step limit 51) step) > 50
  union all
  (select priority, run_at from keyed offset $1 / 10 limit 1)
  limit 1
),

-- part: up_to_keyed
      -- The end of a look into the priority `range.low`: its due jobs, up to the last keyed one.
      and job.run_at <= least(
        coalesce($3::timestamptz, statement_timestamp()),
        (
          select case
            when range.low < last_keyed.priority then 'infinity'
            when range.low = last_keyed.priority then last_keyed.run_at - interval '1 microsecond'
            else '-infinity'
          end
          from last_keyed
        )
      )
      and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $1::integer
    for no key update skip locked
