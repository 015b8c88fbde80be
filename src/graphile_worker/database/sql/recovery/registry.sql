-- The register of worker pools, and their heartbeats.

-- statement: register_worker
-- Register a worker pool, or register it again after a sweep deleted its row.
--
-- $1 text         pool id
-- $2 text         host
-- $3 integer      process id
-- $4 text         version of the package
-- $5 text[]       task identifiers
-- $6 integer      concurrency
-- $7 timestamptz  start time, or null for now
-- $8 text         liveness: lock or heartbeat
-- $9 integer      process id of the session that holds its lock, or null
-- $10 interval    heartbeat interval
-- $11 interval    grace: how long it may be unreachable before it is declared dead
-- Returns its start time.
--
-- Does not wait for the commit to reach the disk: jobs that the pool locks later come after it in the same log, so they
-- cannot survive a crash of the server without this row.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_workers
  (id, host, pid, version, tasks, concurrency, started_at, liveness, backend_pid, heartbeat_interval, grace)
select $1, $2, $3, $4, $5::text[], $6, coalesce($7, now()), $8, $9, $10, $11
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
on conflict (id) do update
set last_seen_at = now(), lost_at = null, liveness = excluded.liveness, backend_pid = excluded.backend_pid
returning started_at

-- statement: register_and_describe_worker @not_in_rust
-- What register_worker, describe_worker and rust_heartbeat do, in one round trip. Needs own_objects/workers, and the Rust
-- port's table of workers; the variant leaves that alone.
--
-- $1 to $9    as in describe_worker
-- $10 to $19  as $2 to $11 in register_worker
-- Returns its start time.
with
setting as materialized (select pg_catalog.set_config('synchronous_commit', 'off', true)),
:include rust_row
registered as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_workers (
    id, app_version, lanes, flag_rules,
    host, pid, version, tasks, concurrency, started_at, liveness, backend_pid, heartbeat_interval, grace
  )
  select
    $1, $2::text, $3::text::jsonb, $4::text::jsonb,
    $10, $11, $12, $13::text[], $14, coalesce($15, now()), $16, $17, $18, $19
  from setting
  on conflict (id) do update set
    last_seen_at = now(), lost_at = null, liveness = excluded.liveness, backend_pid = excluded.backend_pid,
    app_version = excluded.app_version, lanes = excluded.lanes, flag_rules = excluded.flag_rules
  returning started_at
),
:include descriptions
select started_at from registered

-- statement: describe_worker
-- Say more about a worker pool that is registered, and note that its version of the application was started. Needs
-- own_objects/workers.
--
-- $1 text      pool id
-- $2 text      version of the application, or null
-- $3 text      its lanes (JSON)
-- $4 text      rules for flags (JSON)
-- $5 text[]    identifiers of its tasks, each once
-- Then arrays with one element for each: $6 text[] runbooks, $7 text[] owners, $8 text[] types of the payload, $9 text[]
-- schemas of the payload (JSON). A task without any of them has a row only if it had one.
with
described as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_workers
  set app_version = $2::text, lanes = $3::text::jsonb, flag_rules = $4::text::jsonb
  where id = $1::text
),
:include descriptions
select count(*) from latest

-- part: rust_row
in_rust as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_workers (id, last_heartbeat_at, metadata)
  select $1, now(), pg_catalog.jsonb_build_object('pid', $11::integer)
  from setting
  on conflict (id) do update set last_heartbeat_at = excluded.last_heartbeat_at
),

-- part: rust_row@not_in_rust
-- A Rust worker may create the table later.

-- part: leave_rust
-- Without a row there.

-- part: leave_rust@in_rust
with left_rust as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_workers where id = $1::text
)

-- part: descriptions
-- A start belongs to the latest deploy if the version is the same, or to one a few minutes ago: while workers are
-- replaced, old and new ones may start in turns.
latest as materialized (
  select id, version from :GRAPHILE_WORKER_SCHEMA._private_py_deploys order by id desc limit 1
),
known as materialized (
  select deploy.id
  from :GRAPHILE_WORKER_SCHEMA._private_py_deploys deploy
  where deploy.version = $2::text
    and (deploy.last_started_at > now() - interval '15 minutes' or deploy.id = (select latest.id from latest))
  order by deploy.id desc
  limit 1
),
continued as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_deploys deploy
  set last_started_at = now(), starts = deploy.starts + 1
  from known
  where deploy.id = known.id
),
added as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_deploys (version)
  select $2::text
  where $2::text is not null and not exists (select from known)
),
purged as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_deploys deploy
  where deploy.id <= (
    select kept.id from :GRAPHILE_WORKER_SCHEMA._private_py_deploys kept order by kept.id desc offset 500 limit 1
  )
),
unasked as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_requests request
  where not exists (
    select from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker where worker.id = request.pool_id
  ) and request.pool_id <> $1::text
),
-- Rows about tasks are written in one order by all, so that workers that start at once do not wait for each other in a circle. A
-- row that says the same is written once a day. Only the latest 2,000 are kept.
forgotten as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions description
  where description.identifier in (
    select old.identifier
    from :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions old
    where old.described_at < now() - interval '1 day'
    order by old.described_at desc
    offset 2000
    for update skip locked
  )
),
told as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions as description
    (identifier, runbook, owner, payload_type, payload_schema)
  select task.identifier, task.runbook, task.owner, task.payload_type, task.payload_schema::json
  from unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
    as task (identifier, runbook, owner, payload_type, payload_schema)
  where coalesce(task.runbook, task.owner, task.payload_type, task.payload_schema) is not null
    or exists (
      select from :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions known where known.identifier = task.identifier
    )
  order by task.identifier
  on conflict (identifier) do update set
    runbook = excluded.runbook, owner = excluded.owner, payload_type = excluded.payload_type,
    payload_schema = excluded.payload_schema, described_at = now()
  where description.runbook is distinct from excluded.runbook
    or description.owner is distinct from excluded.owner
    or description.payload_type is distinct from excluded.payload_type
    or description.payload_schema::text is distinct from excluded.payload_schema::text
    or description.described_at < now() - interval '1 day'
)

-- statement: add_worker_tasks
-- Note that a worker pool has further tasks.
--
-- $1 text    pool id
-- $2 text[]  task identifiers
update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
set tasks = array(
  select identifier
  from (
    select pg_catalog.unnest(worker.tasks) as identifier
    union
    select pg_catalog.unnest($2::text[])
  ) known
  order by identifier
)
where worker.id = $1::text

-- statement: heartbeat
-- A worker pool's heartbeat.
--
-- $1 text     pool id
-- $2 text     liveness: lock or heartbeat
-- $3 integer  process id of the session that holds its lock, or null
-- Returns the process id of this session and the server's time (seconds since 1970); no row if the pool was declared dead and its jobs were recovered. Does not
-- wait for the commit to reach the disk (see register_worker).
:include beating
:include heartbeat_answer

-- statement: heartbeat_with_load
-- A worker pool's heartbeat, with its load. Needs own_objects/workers.
--
-- $1 to $3  as in heartbeat
-- $4 text   its load (JSON)
-- Returns what heartbeat returns.
:include beating
  , state = coalesce(worker.state, '{}'::jsonb) || pg_catalog.jsonb_build_object('load', $4::text::jsonb)
:include heartbeat_answer

-- statement: heartbeat_with_jobs
-- A worker pool's heartbeat, with its load and a report of its jobs. Needs own_objects/workers.
--
-- $1 to $4               as in heartbeat_with_load
-- $5 integer             number of jobs that the pool has locked
-- $6 bigint[]            ids of running jobs
-- $7 double precision[]  seconds since each was started
-- Returns what heartbeat returns.
:include beating
  , state = coalesce(worker.state, '{}'::jsonb) || pg_catalog.jsonb_build_object('load', $4::text::jsonb),
  jobs_held = $5,
  running = coalesce(
    (
      select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_array(job.id, date_part('epoch', now()) - job.age) order by job.age desc, job.id
      )
      from unnest($6::bigint[], $7::double precision[]) as job (id, age)
    ),
    '[]'
  )
:include heartbeat_answer

-- statement: report_blockage
-- Record what blocks the event loop of a worker pool, or that it runs again. Needs own_objects/workers.
--
-- $1 text              pool id
-- $2 text              task identifier, null if it is not a task
-- $3 bigint            job id, or null
-- $4 double precision  seconds since the loop last ran; null if it runs again
-- Not a heartbeat: does not touch last_seen_at.
update :GRAPHILE_WORKER_SCHEMA._private_py_workers
set blocked = case
  when $4::double precision is not null
  then pg_catalog.jsonb_build_object(
    'task', $2::text, 'job', $3::bigint, 'since', date_part('epoch', now()) - $4::double precision
  )
end
where id = $1::text

-- statement: report_state
-- Record how a worker pool stands. Needs own_objects/workers.
--
-- $1 text              pool id
-- $2 boolean           whether notifications reach it
-- $3 double precision  seconds that its clock is ahead of the server's, or null
-- $4 text              processes and machines that run its tasks, as JSON, or null
-- $5 double precision  seconds for which no fetch has succeeded although slots are free, or null
-- Not a heartbeat: does not touch last_seen_at.
update :GRAPHILE_WORKER_SCHEMA._private_py_workers
set state = coalesce(state, '{}'::jsonb) || pg_catalog.jsonb_build_object(
  'is_listening', $2::boolean, 'clock', $3::double precision, 'executors', $4::text::jsonb,
  'stalled_since', date_part('epoch', now()) - $5::double precision
)
where id = $1::text

-- statement: lock_worker
-- Take the advisory lock that proves a worker pool alive. It ends with the session.
--
-- $1 text  name of the schema
-- $2 text  pool id
-- Returns whether it was free.
select pg_try_advisory_lock(hashtextextended($1::text || '/' || $2::text, 0::bigint))

-- statement: unlock_worker
-- Release the advisory lock that proves a worker pool alive.
--
-- $1 text  name of the schema
-- $2 text  pool id
select pg_advisory_unlock(hashtextextended($1::text || '/' || $2::text, 0::bigint))

-- statement: deregister_worker @in_rust
-- Remove the row of a worker pool that has shut down and holds nothing; the variant removes that in the Rust port's table, too.
--
-- $1 text  pool id
:include leave_rust
delete from :GRAPHILE_WORKER_SCHEMA._private_py_workers where id = $1::text

-- statement: end_old_worker_session
-- Terminate this pool's previous session: its connection is lost, but the server has not noticed and keeps the lock.
--
-- $1 text  name of the schema
-- $2 text  pool id
-- Returns the number of terminated sessions: 0 if something else holds the lock briefly.
select pg_catalog.count(pg_terminate_backend(held.pid))
from pg_catalog.pg_locks held
join :GRAPHILE_WORKER_SCHEMA._private_py_workers worker on worker.backend_pid = held.pid
where worker.id = $2::text
  and held.pid <> pg_backend_pid()
  and held.granted and held.locktype = 'advisory' and held.objsubid = 1
  and held.database = (select oid from pg_catalog.pg_database where datname = current_database())
  and held.classid = ((hashtextextended($1::text || '/' || $2::text, 0::bigint) >> 32) & 4294967295)::oid
  and held.objid = (hashtextextended($1::text || '/' || $2::text, 0::bigint) & 4294967295)::oid

-- statement: begin_heartbeats
-- Take the advisory lock that proves a worker pool alive, with settings for the session that holds it. Keepalives let the
-- server notice soon that a machine is gone; on a Unix socket they have no effect. Timeouts and isolation level override what
-- the role or the database sets.
--
-- $1 text     name of the schema
-- $2 text     pool id
-- $3 integer  pid of the backend, as the driver knows it
-- Returns is_locked (whether the lock was free). No row, and nothing is done, if the session is another one: a pooler's.
select
:include safe_search_path
  pg_catalog.set_config('tcp_keepalives_idle', '5', false),
  pg_catalog.set_config('tcp_keepalives_interval', '3', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '1min', false),
  pg_catalog.set_config('lock_timeout', '0', false),
:include no_transaction_timeout
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
  case -- not before PostgreSQL 14
    when pg_catalog.current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_try_advisory_lock(hashtextextended($1::text || '/' || $2::text, 0::bigint)) as is_locked
where pg_backend_pid() = $3::integer

-- statement: list_workers
-- Worker pools that are registered or, where the jobs table is scanned, have jobs locked.
--
-- $1 text     name of the schema
-- $2 boolean  whether to scan the jobs table whatever its size
-- $3 bigint   size in pages up to which it is scanned in any case: no index leads to locked jobs
-- Returns is_scanned, has_rust_register (whether the Rust port's table of workers can be read) and, for each pool, our own first: its registration and its last report (null for pools of other
-- runtimes), is_alive (null if unknown), remaining (seconds until an unreachable pool is declared dead), silent_for
-- (seconds since the last heartbeat, if longer than allowed), now (seconds since 1970), and the jobs that the scan found. One
-- row with a null id if there is no pool. Changes nothing, unlike mark_unreachable_workers.
with
scan as materialized (
  select
    $2::boolean
    or pg_catalog.pg_relation_size(class.oid) <= $3::bigint * pg_catalog.current_setting('block_size')::bigint as is_scanned,
    exists (
      select from pg_catalog.pg_class register
      where register.relnamespace = namespace.oid and register.relname = '_private_workers'
        and pg_catalog.has_table_privilege(register.oid, 'select'::text)
    ) as has_rust_register
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where namespace.nspname = $1::text and class.relname = '_private_jobs'
),
held as (
  select locked_by as id, pg_catalog.array_agg(id order by id) as job_ids, min(locked_at) as locked_since
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where (select is_scanned from scan) and locked_by is not null
  group by locked_by
),
:include workers_with_liveness
select
  scan.is_scanned,
  scan.has_rust_register,
  id,
  worker.host, worker.pid, worker.version, worker.tasks, worker.concurrency, worker.liveness,
  date_part('epoch', worker.started_at) as started_at,
  date_part('epoch', worker.last_seen_at) as last_seen_at,
  worker.is_alive,
  case
    when not worker.is_alive
    then date_part('epoch', coalesce(worker.lost_at, now())) + date_part('epoch', worker.grace) - date_part('epoch', now())
  end as remaining,
  case
    when worker.last_seen_at < now() - worker.allowed_silence
    then date_part('epoch', now()) - date_part('epoch', worker.last_seen_at)
  end as silent_for,
  date_part('epoch', now()) as now,
  -- By name, because an earlier version of own_objects/workers has not all of these columns.
  (pg_catalog.to_jsonb(worker) ->> 'jobs_held'::text)::integer as jobs_held,
  pg_catalog.to_jsonb(worker) ->> 'running'::text as running,
  pg_catalog.to_jsonb(worker) ->> 'blocked'::text as blocked,
  pg_catalog.to_jsonb(worker) ->> 'app_version'::text as app_version,
  pg_catalog.to_jsonb(worker) ->> 'lanes'::text as lanes,
  pg_catalog.to_jsonb(worker) ->> 'state'::text as state,
  pg_catalog.to_jsonb(worker) ->> 'flag_rules'::text as flag_rules,
  coalesce(held.job_ids, '{}') as job_ids,
  -- Jobs of held batches: their pool reports that it runs them, and they look ready.
  array(
    select job.id
    from pg_catalog.jsonb_array_elements(
      case
        when pg_catalog.jsonb_typeof(pg_catalog.to_jsonb(worker) -> 'running'::text) = 'array'::text
        then pg_catalog.to_jsonb(worker) -> 'running'::text else '[]'::jsonb
      end
    ) as reported (job)
    join :GRAPHILE_WORKER_SCHEMA._private_jobs as job on job.id = (reported.job ->> 0)::bigint
    where scan.is_scanned and worker.is_alive and job.is_available and job.run_at <= now()
    order by job.id
  ) as held_ids,
  date_part('epoch', held.locked_since) as locked_since
from scan left join (worker full join held using (id)) on true
order by worker.started_at nulls last, id

-- part: beating
update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
set last_seen_at = now(), lost_at = null, liveness = $2, backend_pid = $3

-- part: heartbeat_answer
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
where worker.id = $1::text
returning pg_backend_pid() as pid, date_part('epoch', clock_timestamp()) as server_time
