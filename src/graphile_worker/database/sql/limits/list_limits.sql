-- Every limit: its bounds, where they come from, and how much of it is in use.
--
-- Returns a row per limit, by name.
select
  limits.name,
  limits.max_running as concurrency,
  coalesce(limits.set_starts, limits.code_starts)::integer as starts,
  coalesce(limits.set_period, limits.code_period) as period,
  case when limits.rate is not null then limits.burst::integer end as burst,
  limits.tasks,
  limits.set_at,
  pg_catalog.array_remove(
    array[
      case when limits.set_concurrency is not null then 'concurrency' end,
      case when limits.set_starts is not null then 'rate' end,
      case when limits.set_burst is not null then 'burst' end
    ],
    null
  ) as overridden,
  case when limits.max_running is not null then (
    select count(*)::integer from :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds lease
    join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = lease.job_id and job.locked_by = lease.pool_id
    where lease.limit_name = limits.name
  ) end as running,
  case when limits.rate is not null then floor(
    least(
      limits.burst,
      limits.tokens
      + limits.rate * greatest(0::double precision, date_part('epoch', clock_timestamp() - limits.refilled_at))
    )
  )::integer end as may_start
from :GRAPHILE_WORKER_SCHEMA._private_py_limits limits
order by limits.name
