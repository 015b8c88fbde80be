-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each.
--
-- Returns priority, and the server's time in seconds since 1970; the priority is null in a row of its own if
-- there is no such job.
with recursive waiting (priority) as (
  (
    select priority from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from waiting last where last.priority is not null
)
select waiting.priority, date_part('epoch', now()) as now
from (select) as always left join waiting on true
where waiting.priority is not null or not exists (select from waiting where priority is not null)
