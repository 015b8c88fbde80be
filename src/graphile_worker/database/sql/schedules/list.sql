-- Recurring jobs by identifier: those that running workers have registered, and others that the database knows.
--
-- $1 text     only this one, or null
-- $2 text     those after this identifier, or null
-- $3 integer  how many at most
-- Returns for each identifier: known_since and last_execution (seconds since 1970, or null), definitions (a JSON array:
-- pool, position, task, pattern, zone, payload, options, source; the worker that started last comes first), job_ids and
-- due_at (a JSON array each, the latest first), paused_at, until (seconds since 1970) and reason of its pause.
with
wanted as materialized (
  (
    select identifier
    from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs
    where ($1::text is null or identifier = $1::text) and ($2::text is null or identifier > $2::text)
    order by identifier
    limit $3::integer
  )
  union
  (
    select distinct schedule.identifier
    from :GRAPHILE_WORKER_SCHEMA._private_py_schedules schedule
    join :GRAPHILE_WORKER_SCHEMA._private_py_workers worker on worker.id = schedule.pool_id
    where ($1::text is null or schedule.identifier = $1::text) and ($2::text is null or schedule.identifier > $2::text)
    order by schedule.identifier
    limit $3::integer
  )
),
page as materialized (select identifier from wanted order by identifier limit $3::integer)
select
  page.identifier,
  date_part('epoch', known.known_since) as known_since,
  date_part('epoch', known.last_execution) as last_execution,
  definition.definitions::text as definitions,
  pg_catalog.to_json(run.job_ids)::text as job_ids,
  (
    select pg_catalog.json_agg(date_part('epoch', due.at) order by due.position)::text
    from pg_catalog.unnest(run.due_at) with ordinality as due (at, position)
  ) as due_at,
  date_part('epoch', pause.paused_at) as paused_at,
  date_part('epoch', pause.until) as until,
  pause.reason,
  pause.identifier is not null as is_paused
from page
left join :GRAPHILE_WORKER_SCHEMA._private_known_crontabs known on known.identifier = page.identifier
left join :GRAPHILE_WORKER_SCHEMA._private_py_schedule_runs run on run.identifier = page.identifier
left join :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses pause
  on pause.identifier = page.identifier and (pause.until is null or pause.until > now())
left join lateral (
  select pg_catalog.json_agg(
    pg_catalog.json_build_object(
      'pool_id', schedule.pool_id, 'position', schedule.position, 'task_identifier', schedule.task,
      'pattern', schedule.pattern, 'zone', schedule.zone, 'payload', schedule.payload, 'options', schedule.options,
      'source', schedule.source, 'started_at', date_part('epoch', worker.started_at), 'host', worker.host,
      'pid', worker.pid, 'app_version', worker.app_version
    ) order by worker.started_at desc, schedule.pool_id
  ) as definitions
  from :GRAPHILE_WORKER_SCHEMA._private_py_schedules schedule
  join :GRAPHILE_WORKER_SCHEMA._private_py_workers worker on worker.id = schedule.pool_id
  where schedule.identifier = page.identifier
) definition on true
order by page.identifier
