-- Lock the next jobs for a pool when somebody has just announced one: half of the time that get_plain_jobs takes to find
-- a single job goes into what is not there, other priorities and named queues. Finds nothing if there is any of these.
--
-- $1 text         pool id
-- $2 text[]       ids of the tasks that it has
-- $3 integer      how many jobs at most
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the time to go by, or null for the server's
with task (ids) as materialized (select $2::text[]::integer[]),
plain as materialized (
  select job.ctid as place
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  where job.is_available and job.job_queue_id is null
    and job.priority = (
      select lowest.priority
      from (
        select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
        where is_available and job_queue_id is null
        order by priority limit 1
      ) lowest
      cross join (
        select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
        where is_available and job_queue_id is null
        order by priority desc limit 1
      ) highest
      where lowest.priority = highest.priority
        and not exists (
          select from :GRAPHILE_WORKER_SCHEMA._private_jobs where is_available and job_queue_id is not null
        )
    )
    and job.run_at <= coalesce($5::timestamptz, now())
    and job.task_id = any ((select ids from task)::integer[])
    and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
  order by job.run_at
  limit $3::integer
  for update skip locked
)
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from plain))
returning
:include taken_columns
