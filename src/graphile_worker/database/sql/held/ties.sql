-- Held batches of jobs that were added together.

-- statement: get_tied_jobs @routed
-- Choose the next jobs like get_held_jobs while all have the same priority and run_at, as jobs that were added together
-- do: go on by id after the last one, and so pass the rows that other batches have locked.
--
-- Any waiting job with a key or of a named queue stops it, at one index probe each. What those jobs are is not looked at:
-- with get_tied_jobs_among_others that costs almost as much again as this fetch.
--
-- $1 to $4                as in get_held_jobs
-- $5 smallint             the priority of the last job
-- $6 double precision     its run_at (seconds since 1970)
-- $7 bigint               its id
-- $8 smallint[]           ranges of priorities up to that one, see get_held_jobs_above_watermarks: the lowest of each, ...
-- $9 smallint[]           ... the highest ...
-- $10 double precision[]  ... and the run_at to start from
-- Returns the columns of a job as if it were locked, in run order; none if another job may be next.
with recursive
:include held_terms
:include none_keyed_or_queued
,
:include tied

-- statement: get_tied_jobs_among_others @routed
-- Choose the next jobs like get_tied_jobs while jobs with a key or of a named queue wait too: look at which of them may be
-- next.
--
-- Parameters and result are those of get_tied_jobs.
with recursive
:include held_terms
:include keyed
:include free_queues
,
:include tied

-- part: none_keyed_or_queued
-- In place of `keyed` and `free_queues`: any job with a key or of a named queue may be next.
first_keyed (place) as (select null::text),
last_keyed (priority, run_at) as materialized (
  select (-32768)::smallint, '-infinity'::timestamptz
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.is_available and job.job_queue_id is null and job.key is not null
  order by job.task_id, job.priority -- by the index, whatever the statistics say
  limit 1
),
queues (may_be_next) as materialized (
  select exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null
    order by job.job_queue_id limit 1
  )
)

-- part: tied
-- Part of both fetches of tied jobs, after what tells about jobs with a key and of named queues.
-- Whether a job comes before them. The head of the index would tell too, but it has the deleted rows of the last batches.
urgent as materialized (
  select
  from unnest($8::smallint[], $9::smallint[], $10::double precision[]) as range (low, high, since)
  cross join lateral (
    (
      select
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
      order by job.priority, job.run_at
      limit 1
    )
    union all
    (
      select
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at < case
          when range.low < $5::smallint then 'infinity'::timestamptz else to_timestamp($6::double precision)
        end
      order by job.run_at
      limit 1
    )
  ) first
  limit 1
),
-- Where to start. Other workers go on by id too and may have taken the next ids. Looking at ten ids in each eighth of a batch,
-- for four batches, finds the first that are free, and the fetch starts one eighth before them. If there are none, other
-- workers are right ahead, and this one goes on at random in the next 1,024 batches, or 512, and so on. So each worker soon has
-- a part of a long backlog to itself. Free ids that it passes are left to a later fetch.
-- `is true`: see complete_adjacent_jobs.
start (id) as materialized (
  select look.id
  from (
    select
      greatest($7::bigint + (near.step - 1::bigint) * greatest($1::bigint / 8::bigint, 1::bigint), $7::bigint) as id,
      $7::bigint + near.step * greatest($1::bigint / 8::bigint, 1::bigint) + 1::bigint as first
    from pg_catalog.generate_series(0::bigint, 32::bigint) as near (step)
    union all
    select far.id, far.id + 1::bigint
    from (
      select $7::bigint + (pg_catalog.random() * (1024 >> try.number / 4)::double precision * $1::double precision)::bigint as id
      from pg_catalog.generate_series(0, 43) as try (number)
    ) far
  ) look
  cross join lateral (
    select
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.id >= look.first and job.id < look.first + 10::bigint and (job.is_available) is true
      and job.priority = $5 and job.run_at = to_timestamp($6::double precision)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    limit 1
  ) free
  limit 1
)
select
:include held_columns
from :GRAPHILE_WORKER_SCHEMA._private_jobs job
where job.id > (select id from start) and job.id <= (select id from start) + 4::bigint * $1::bigint
  and job.is_available and job.job_queue_id is null and job.key is null
  and job.priority = $5 and job.run_at = to_timestamp($6::double precision)
  and job.run_at <= coalesce($3::timestamptz, statement_timestamp())
  and job.task_id = any ((select ids from task)::integer[])
:include flag_rules
  and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
  and not exists (select from urgent)
  and not exists (select from last_keyed where (priority, run_at) <= ($5, to_timestamp($6::double precision)))
  and not (select may_be_next from queues)
order by job.id
limit $1
for no key update of job skip locked
