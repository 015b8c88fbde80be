-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; and how long the
-- server takes for that, and to read past the rows that a fetch cannot take. It locks none.
--
-- A fetch may take long for other reasons: it waits for a lock on the table, or the answer for the worker. The clock starts
-- when the statement has all its locks. Reading ends at 50,000 rows, because jobs wait for the answer: there are many then.
--
-- $1 integer      how many priorities
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      how many jobs to find; 0 to find none
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns priority, the server's time in seconds since 1970, the seconds that it took, and whether reading ended early; one
-- row with a null priority if there is no such job.
with recursive
:include terms
:include plain_priority
,
-- Each of these runs after the one before, because it refers to it.
began as materialized (select clock_timestamp() as at),
listed as materialized (
  select walk.priority
  from began cross join lateral (
    select priority from plain_priority where priority is not null and began.at is not null limit $1::integer
  ) walk
),
-- Read only as far as `found` asks for it. More priorities than those that are listed are read as one range.
ready as materialized (
  select job.task_id, job.flags, job.locker
  from (
    select job.task_id, job.flags, job.locker
    from listed cross join lateral (
      select job.task_id, job.flags, job.xmax as locker
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.is_available and job.job_queue_id is null
        and job.priority = listed.priority and job.run_at <= coalesce($5::timestamptz, now())
      order by job.run_at
      limit 50000
    ) job
    union all
    select job.task_id, job.flags, job.locker
    from (
      select pg_catalog.max(priority) as priority from listed having count(*) >= $1::bigint
    ) last cross join lateral (
      select job.task_id, job.flags, job.xmax as locker
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where job.is_available and job.job_queue_id is null
        and job.priority > last.priority and job.run_at <= coalesce($5::timestamptz, now())
      order by job.priority, job.run_at
      limit 50000
    ) job
  ) job
  limit case when $3::integer > 0 then 50000 else 0 end
),
found as materialized (
  select count(*) as jobs
  from (
    select
    from ready job
    where job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
      and (job.locker = 0 or job.locker <> all ((select transactions from other)::xid[]))
    limit $3::integer
  ) job
),
ended as materialized (
  select clock_timestamp() as at, found.jobs < $3::bigint and (select count(*) from ready) >= 50000::bigint as is_cut
  from (select count(*) as priorities from listed) walk cross join found
  where walk.priorities is not null
)
select
  listed.priority, date_part('epoch', now()) as now, date_part('epoch', ended.at - began.at) as seconds, ended.is_cut
from ended cross join began left join listed on true
