-- Which pools are dead, and who looks for them.

-- statement: sweep_lock
-- One sweep at a time, across runtimes: the Rust port takes the same lock. Ends with the transaction.
-- Returns whether it was free.
--
-- $1 text  longest duration of the transaction
--
-- The timeouts end the transaction of a sweeper that was suspended or vanished from the network. Without them no other
-- worker could sweep until the server noticed. The first one covers the time between statements. The driver sends a
-- statement in two steps, and between these the session is not idle: the second one covers that, where there is one, and
-- other sweepers end such a session (silent_sweeper).
select pg_try_advisory_xact_lock(1196905043, 1398228304)
from (
  select
    pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true),
    case when pg_catalog.current_setting('server_version_num')::integer >= 170000
      then pg_catalog.set_config('transaction_timeout', $1::text, true)
    end
) setting

-- statement: silent_sweeper
-- The session of another worker that has the sweep lock and waits for its client in the middle of a statement. The driver
-- sends a statement in two steps; no timeout covers the time between them before PostgreSQL 17. A client that is silent
-- there for seconds is suspended.
--
-- $1 integer  process id of a session to end if it still waits for the same, or null
-- $2 float8   when that statement began, in seconds since 1970, or null
-- Returns the process id, when its statement began, and whether it was ended.
with silent as materialized (
  select activity.pid, date_part('epoch', activity.query_start) as began
  from pg_catalog.pg_locks held
  join pg_catalog.pg_stat_activity activity on activity.pid = held.pid
  where held.granted and held.locktype = 'advisory' and held.objsubid = 2
    and held.database = (select oid from pg_catalog.pg_database where datname = current_database())
    and held.classid = 1196905043::oid and held.objid = 1398228304::oid
    and activity.pid <> pg_backend_pid() and activity.usename = current_user
    and activity.state = 'active' and activity.wait_event = 'ClientRead'
)
select
  pid,
  began,
  case when pid = $1::integer and began = $2::double precision then pg_terminate_backend(pid) end as is_ended
from silent

-- statement: mark_unreachable_workers
-- Find unreachable worker pools and set lost_at; clear it for pools that are back.
--
-- $1 text  name of the schema
-- $2 text  pool id of the caller, which is skipped, or null
-- Returns for each unreachable pool: id, newly (whether this sweep noticed first), remaining (seconds until it is declared
-- dead), its grace in seconds, and is_silent (only its heartbeats are missing: no lock shows that its connection is lost). Covers pools of this package only: other runtimes send us no heartbeats.
--
-- If the lock of a pool is free we hold it until the end of this transaction, so that the pool cannot come back halfway.
with
proven (id) as materialized (
  select worker.id
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
:include proof
  where case
    when proof.by_lock and worker.id is distinct from $2::text
    then not pg_try_advisory_xact_lock(hashtextextended($1::text || '/' || worker.id, 0::bigint))
    else false
  end
),
checked as materialized (
  select
    worker.id,
    worker.lost_at,
    worker.grace,
    not coalesce(proof.by_lock, false) as is_silent,
    not
:include is_alive
    as is_unreachable
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
:include proof
  where worker.id is distinct from $2::text
),
marked as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  set lost_at = case when checked.is_unreachable then now() end
  from checked
  where worker.id = checked.id
    and case
      when checked.is_unreachable then worker.lost_at is null or worker.lost_at > now()
      else worker.lost_at is not null
    end
  returning worker.id, worker.lost_at
)
select
  checked.id,
  marked.id is not null as newly,
  date_part('epoch', coalesce(marked.lost_at, checked.lost_at)) + date_part('epoch', checked.grace)
    - date_part('epoch', now()) as remaining,
  date_part('epoch', checked.grace) as grace,
  checked.is_silent
from checked left join marked on marked.id = checked.id
where checked.is_unreachable
order by checked.id

-- statement: look_for_deaths
-- Whether a worker pool died lately without a goodbye. Needs own_objects/recovery.
--
-- $1 text              name of the schema
-- $2 text              pool id of the caller, which is skipped
-- $3 double precision  for how many seconds after a sweep a death counts
-- Returns the process id of this session, hosts and processes of the other pools that count as alive, unproven (which of
-- them have not taken their lock yet: one that died at its start never will) and calm_in (seconds until no death counts; 0
-- if none does). No row if the role may not see the last death. Changes nothing.
--
-- An unreachable pool counts from the moment in which its lock is free, and for a while after it should have been swept. Its row
-- may stay for longer if one of its jobs is left locked. A time in the future means that the clock was set back.
with
:include workers_with_liveness
,
other as materialized (
  select
    worker.host,
    worker.pid,
    worker.is_alive,
    worker.is_alive and worker.liveness = 'lock' and worker.backend_pid is null as is_unproven,
    case
      when not worker.is_alive
      then date_part('epoch', coalesce(worker.lost_at, now())) + date_part('epoch', worker.grace) + $3::double precision
    end as calm_at
  from worker
  where worker.id <> $2::text
),
death as (
  select case
    when died_at between now() - interval '1 second' * $3::double precision and now() + interval '1 second' * $3::double precision
    then date_part('epoch', died_at) + $3::double precision
  end as calm_at
  from :GRAPHILE_WORKER_SCHEMA._private_py_last_death
)
select
  pg_backend_pid() as pid,
  array(select host from other where is_alive order by host, pid) as hosts,
  array(select pid from other where is_alive order by host, pid) as processes,
  array(select is_unproven from other where is_alive order by host, pid) as unproven,
  greatest(
    coalesce(greatest(death.calm_at, (select max(calm_at) from other)) - date_part('epoch', now()), 0::double precision),
    0::double precision
  ) as calm_in
from death

-- statement: delete_dead_workers
-- Delete worker pools that have been unreachable for their whole grace.
--
-- $1 text[]  pool ids
-- Returns the deleted ids. A pool whose heartbeat has just arrived stays.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_workers
where id = any ($1::text[]) and lost_at <= now() - grace
returning id

-- statement: claim_maintenance
-- Claim regular work that is due: the pool that did it last goes first, others follow when it is late.
--
-- $1 text                pool id
-- $2 text[]              names of the maintenance tasks, each once
-- $3 double precision[]  intervals, in seconds
-- $4 double precision    how late a pool must be for others to take over, in seconds
-- Returns for each of them its name, is_ours (do it now), and wait (seconds until it may be ours otherwise).
with wanted as (
  select each.name, each.seconds
  from unnest($2::text[], $3::double precision[]) as each (name, seconds)
  where pg_catalog.set_config('synchronous_commit', 'off', true) is not null
),
claimed as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_duties as done (name, pool_id, done_at)
  select wanted.name, $1::text, now()
  from wanted
  order by wanted.name
  on conflict (name) do update set pool_id = excluded.pool_id, done_at = excluded.done_at
  where done.done_at > excluded.done_at + interval '1 minute' -- the server's clock was set back
  or date_part('epoch', excluded.done_at) - date_part('epoch', done.done_at) >= (
    -- The pool's clock may be a little ahead of the server's.
    select case
      when done.pool_id = excluded.pool_id then wanted.seconds * 0.9::double precision
      else wanted.seconds + $4::double precision
    end
    from wanted
    where wanted.name = done.name
  )
  returning done.name
)
select
  wanted.name,
  claimed.name is not null as is_ours,
  case
    when claimed.name is not null then wanted.seconds
    else coalesce(
      date_part('epoch', done.done_at) - date_part('epoch', now()) + wanted.seconds
      + case when done.pool_id = $1::text then 0::double precision else $4::double precision end,
      wanted.seconds + $4::double precision
    )
  end as wait
from wanted
left join claimed on claimed.name = wanted.name
left join :GRAPHILE_WORKER_SCHEMA._private_py_duties as done on done.name = wanted.name
