-- What operators ask of pools.

-- statement: answer
-- Answer a request.
--
-- $1 bigint  id of the request
-- $2 text    the answer (JSON)
update :GRAPHILE_WORKER_SCHEMA._private_py_requests set answer = $2::text::jsonb where id = $1::bigint

-- statement: answer_with_slots
-- Answer a request for another concurrency, and change the row of the pool. Needs own_objects/control.
--
-- $1, $2      as in answer
-- $3 text     pool id
-- $4 integer  how many slots it has
-- $5 text     how many each lane has, by name (JSON)
with
changed as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  set
    concurrency = $4::integer,
    lanes = (
      select pg_catalog.jsonb_agg(
        lane || pg_catalog.jsonb_build_object(
          'slots', coalesce($5::text::jsonb -> (lane ->> 'name'::text), lane -> 'slots'::text)
        )
        order by position
      )
      from jsonb_array_elements(worker.lanes) with ordinality as described (lane, position)
    )
  where worker.id = $3::text
)
update :GRAPHILE_WORKER_SCHEMA._private_py_requests set answer = $2::text::jsonb where id = $1::bigint

-- statement: ask_for_concurrency
-- Ask a worker pool to run another number of jobs at once, in one of its lanes. Needs own_objects/control.
--
-- $1 text     pool id
-- $2 text     lane
-- $3 integer  how many
-- Returns the id of the request; no row if no such pool is registered.
with
:include forgotten
asked as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_requests (pool_id, kind, lane, concurrency)
  select worker.id, 'concurrency', $2::text, $3::integer
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  where worker.id = $1::text
  returning id
),
notified as materialized (
  select pg_notify('worker:py', pg_catalog.json_build_object('requests', 1, 'pool', $1::text)::text) from asked
)
select asked.id from asked cross join notified

-- statement: ask_worker
-- Ask something of a worker pool.
--
-- $1 text    pool id
-- $2 text    stop, quiet (pause) or stack
-- $3 bigint  job id, for a stack
-- $4 text    reason, or null
-- Returns the id of the request; no row if no such pool is registered. A pool is asked only once to stop or to pause.
with
:include forgotten
earlier as materialized (
  select id
  from :GRAPHILE_WORKER_SCHEMA._private_py_requests
  where pool_id = $1::text and kind = $2::text and kind <> 'stack'
  order by id
  limit 1
),
asked as (
  insert into :GRAPHILE_WORKER_SCHEMA._private_py_requests (pool_id, kind, job_id, reason)
  select worker.id, $2::text, $3::bigint, $4::text
  from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker
  where worker.id = $1::text and not exists (select from earlier)
  returning id
),
notified as materialized (
  select pg_notify('worker:py', pg_catalog.json_build_object('requests', 1, 'pool', $1::text)::text) from asked
)
select coalesce((select max(asked.id) from asked), (select max(earlier.id) from earlier)) as id
from (select count(*) from notified) always
where exists (select from :GRAPHILE_WORKER_SCHEMA._private_py_workers worker where worker.id = $1::text)

-- statement: deploys
-- Deploys of the application, the latest first.
--
-- $1 timestamptz  since when they were started
-- $2 integer      how many at most
-- Returns version, started_at, last_started_at (seconds since 1970), starts.
select
  version, date_part('epoch', started_at) as started_at, date_part('epoch', last_started_at) as last_started_at, starts
from :GRAPHILE_WORKER_SCHEMA._private_py_deploys
where started_at >= $1::timestamptz
order by id desc
limit $2::integer

-- statement: list_requests
-- Worker pools that were asked to stop or to pause.
-- Returns pool_id, kind, reason, asked_at (seconds since 1970).
select pool_id, kind, reason, date_part('epoch', asked_at) as asked_at
from :GRAPHILE_WORKER_SCHEMA._private_py_requests
where kind = 'stop' or kind = 'quiet'
order by id

-- statement: read_answer
-- The answer to a request.
--
-- $1 bigint  id of the request
-- Returns answer (JSON text, or null) and now (seconds since 1970); no row if the request is gone.
select answer::text as answer, date_part('epoch', now()) as now
from :GRAPHILE_WORKER_SCHEMA._private_py_requests
where id = $1::bigint

-- statement: resume_worker
-- Let a paused worker pool fetch jobs again.
--
-- $1 text  pool id
-- Returns whether it was paused.
with
resumed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_requests where pool_id = $1::text and kind = 'quiet'
  returning id
),
notified as materialized (
  select pg_notify('worker:py', pg_catalog.json_build_object('requests', 1, 'pool', $1::text)::text) from resumed
)
select exists (select from resumed) as was_paused
from (select count(*) from notified) always

-- statement: withdraw
-- Delete a request.
--
-- $1 bigint  its id
delete from :GRAPHILE_WORKER_SCHEMA._private_py_requests where id = $1::bigint

-- part: forgotten
-- Requests whose answers no one waits for any more are deleted.
forgotten as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_requests
  where kind <> 'stop' and kind <> 'quiet' and asked_at < now() - interval '5 minutes'
),
