-- Whether a worker pool died lately without a goodbye. Needs own_objects/0024_last_death.
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
