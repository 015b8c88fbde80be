-- What is known about recurring jobs.

-- statement: has_schedules
-- Whether this role may read the tables for recurring jobs, if they exist.
--
-- $1 text  the quoted name of the schema
select coalesce(
  pg_catalog.has_table_privilege(
    pg_catalog.to_regclass($1::text || '._private_py_schedules'), 'select'
  )
  and pg_catalog.has_table_privilege(
    pg_catalog.to_regclass($1::text || '._private_py_schedule_pauses'), 'select'
  )
  and pg_catalog.has_table_privilege(
    pg_catalog.to_regclass($1::text || '._private_py_schedule_runs'), 'select'
  )
  and pg_catalog.has_table_privilege(
    pg_catalog.to_regclass($1::text || '._private_py_workers'), 'select'
  ),
  false
) as has_schedules

-- statement: list
-- Recurring jobs by identifier: those that running workers have registered, and others that the database knows.
--
-- $1 text     only this one, or null
-- $2 text     those after this identifier, or null
-- $3 integer  how many at most
-- Returns for each identifier: known_since and last_execution (seconds since 1970, or null), definitions (a JSON array:
-- pool, position, task, pattern, zone, payload, options, source; the worker that started last comes first), job_ids and
-- due_at (a JSON array each, the latest first), since, until (seconds since 1970) and reason of its pause.
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
  date_part('epoch', pause.paused_at) as since,
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

-- statement: list_known
-- The same as schedules/list where only the shared tables exist.
select
  identifier,
  date_part('epoch', known_since) as known_since,
  date_part('epoch', last_execution) as last_execution,
  null::text as definitions, null::text as job_ids, null::text as due_at,
  null::double precision as since, null::double precision as until, null::text as reason, false as is_paused
from :GRAPHILE_WORKER_SCHEMA._private_known_crontabs
where ($1::text is null or identifier = $1::text) and ($2::text is null or identifier > $2::text)
order by identifier
limit $3::integer

-- statement: list_of_task
-- Recurring jobs of one task, as the worker that started last defines each. Needs own_objects/schedules.
--
-- $1 text     task identifier
-- $2 integer  how many at most
select distinct on (schedule.identifier) schedule.identifier, schedule.pattern, schedule.zone
from :GRAPHILE_WORKER_SCHEMA._private_py_schedules schedule
join :GRAPHILE_WORKER_SCHEMA._private_py_workers worker on worker.id = schedule.pool_id
where schedule.task = $1::text
order by schedule.identifier, worker.started_at desc
limit $2::integer

-- statement: list_pauses
-- Recurring jobs that are paused.
-- Returns kind, name, reason, since and until (seconds since 1970).
select
  'schedule' as kind, identifier as name, reason,
  date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses
where until is null or until > now()
order by identifier

-- statement: note_run
-- Note a run of a recurring job that was started by hand.
--
-- $1 text    its identifier
-- $2 bigint  job id
insert into :GRAPHILE_WORKER_SCHEMA._private_py_schedule_runs as run (identifier, job_ids, due_at)
values ($1::text, array[$2::bigint], array[now()])
on conflict (identifier) do update set
  job_ids = (pg_catalog.array_cat(excluded.job_ids, run.job_ids))[1:20],
  due_at = (pg_catalog.array_cat(excluded.due_at, run.due_at))[1:20]

-- statement: pause
-- Pause a recurring job, or change the terms of its pause. Pauses that are over are deleted.
--
-- $1 text              its identifier
-- $2 timestamptz       end of the pause, or null
-- $3 double precision  seconds until its end, or null; with neither it has no end
-- $4 text              reason, or null
-- Returns reason, since and until (seconds since 1970).
with
over as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses where until <= now() and identifier <> $1::text
),
paused as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses as pause (identifier, until, reason)
  values ($1::text, coalesce($2::timestamptz, now() + $3::double precision * interval '1 second'), $4::text)
  on conflict (identifier) do update set
    until = excluded.until,
    reason = excluded.reason,
    paused_at = case when pause.until <= now() then excluded.paused_at else pause.paused_at end
  returning reason, paused_at, until
)
select reason, date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from paused

-- statement: register
-- Register the crontab items of a worker pool, in place of those it has registered. Rows of pools that are gone are
-- deleted. Needs own_objects/schedules.
--
-- $1 text       pool id
-- $2 text[]     identifiers, each once
-- Then arrays with one element for each: $3 text[] tasks, $4 text[] patterns, $5 text[] time zones, $6 text[] payloads
-- (JSON), $7 text[] options (JSON), $8 text[] sources.
with
gone as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_schedules schedule
  where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker where worker.id = schedule.pool_id
  )
)
insert into :GRAPHILE_WORKER_SCHEMA._private_py_schedules
  (pool_id, identifier, position, task, pattern, zone, payload, options, source)
select
  $1::text, item.identifier, item.position::integer, item.task, item.pattern, item.zone, item.payload::json,
  item.options::jsonb, item.source
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
  with ordinality as item (identifier, task, pattern, zone, payload, options, source, position)
on conflict (identifier, pool_id) do update set
  position = excluded.position, task = excluded.task, pattern = excluded.pattern, zone = excluded.zone,
  payload = excluded.payload, options = excluded.options, source = excluded.source

-- statement: resume
-- End the pause of a recurring job.
--
-- $1 text  its identifier
-- Returns whether it was paused.
with resumed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_schedule_pauses where identifier = $1::text
  returning until
)
select exists (select from resumed where until is null or until > now()) as was_paused
