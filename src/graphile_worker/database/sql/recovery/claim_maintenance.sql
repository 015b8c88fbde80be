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
