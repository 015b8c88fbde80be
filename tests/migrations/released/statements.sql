-- The statements of a worker as of ac7a50f6. Written by make.py; never changed by hand.

-- statement control/cancel_reasons
select job_id, reason from "graphile_worker"._private_py_cancels where job_id = any ($1::text[]::bigint[])

-- statement control/cancelled_among
select job_id from "graphile_worker"._private_py_cancels where job_id = any ($1::bigint[])

-- statement control/due_holds
select hold.queue_id, hold.holder
from "graphile_worker"._private_py_queue_holds hold
where hold.job_id is null and (
  hold.until <= now()
  or not exists (select from "graphile_worker"._private_job_queues queue where queue.id = hold.queue_id)
)
order by hold.queue_id
limit 100
for update skip locked

-- statement control/end_and_keep_cancelled
with
asked as materialized (
  select job_id, reason, asked_at from "graphile_worker"._private_py_cancels where job_id = any ($2::bigint[])
),
ended as (
  delete from "graphile_worker"._private_jobs job
  using unnest($2::bigint[], $3::text[]) as wanted (job_id, reason) left join asked on asked.job_id = wanted.job_id
  where job.id = any (array[wanted.job_id]) -- see write_outcomes
    and (job.locked_by = $1::text or job.locked_at is null and asked.job_id is not null)
  returning job.*, coalesce(asked.reason, wanted.reason) as reason, asked.asked_at
),
forgotten as (
  delete from "graphile_worker"._private_py_cancels cancel
  where cancel.job_id = any (array(select ended.id from ended))
),
released_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1
    and queue.id = any (array(select job_queue_id from ended where locked_by is not null and job_queue_id is not null))
)
,
details as materialized (
  select *
  from unnest(
    $2::bigint[], $5::double precision[], $6::boolean[], $7::text[], $8::double precision[], $9::bigint[],
    $10::text[], $11::text[]
  ) as details (job_id, keep_seconds, keep_payload, redacted_payload, seconds, attempt, own_key, pool_id)
),
known as (
  update "graphile_worker"._private_py_history history
  set
    state = 'cancelled',
    error = (select ended.reason from ended where ended.id = history.job_id),
    job_key = coalesce(
      history.job_key, (select details.own_key from details where details.job_id = history.job_id limit 1)
    )
  where history.job_id = any (array(select ended.id from ended))
    and (history.state = 'failed') is true
    and history.finished_at >= (select ended.asked_at from ended where ended.id = history.job_id)
  returning history.job_id
),
kept as (
  insert into "graphile_worker"._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, started_at,
    finished_at, duration, pool_id, flags, payload, error, expires_on
  )
  select
    id, task_id, 'cancelled',
  case
    when job.job_queue_id is not null
      then (
        select pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') from "graphile_worker"._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end
    , coalesce(own_key, key), priority, coalesce(attempt::smallint, attempts), max_attempts, created_at, run_at,
    now() - interval '1 second' * seconds, now(), seconds, pool_id, flags,
    case when keep_payload then coalesce(redacted_payload::json, payload) end, reason,
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
  from (
    select ended.*, details.*, now() as kept_at
    from details join ended on ended.id = details.job_id
    where details.keep_seconds is not null and ended.id <> all (array(select known.job_id from known))
  ) job
),
announced as materialized (
  select pg_notify(
    'worker:ended',
    pg_catalog.json_build_object(
      'schema', $4::text, 'ids', case when count(*) <= 300 then pg_catalog.json_agg(id) end
    )::text
  )
  from ended where id = any ($12::bigint[]) having count(*) > 0
)
select id, reason from ended left join announced on true

-- statement control/end_cancelled
with
asked as materialized (
  select job_id, reason, asked_at from "graphile_worker"._private_py_cancels where job_id = any ($2::bigint[])
),
ended as (
  delete from "graphile_worker"._private_jobs job
  using unnest($2::bigint[], $3::text[]) as wanted (job_id, reason) left join asked on asked.job_id = wanted.job_id
  where job.id = any (array[wanted.job_id]) -- see write_outcomes
    and (job.locked_by = $1::text or job.locked_at is null and asked.job_id is not null)
  returning job.*, coalesce(asked.reason, wanted.reason) as reason, asked.asked_at
),
forgotten as (
  delete from "graphile_worker"._private_py_cancels cancel
  where cancel.job_id = any (array(select ended.id from ended))
),
released_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1
    and queue.id = any (array(select job_queue_id from ended where locked_by is not null and job_queue_id is not null))
)
select id, reason from ended where $4::text is not null

-- statement control/end_holds
with
running as materialized (
  select distinct on (job_queue_id) id, job_queue_id, locked_by, locked_at
  from "graphile_worker"._private_jobs
  where id = any ($2::bigint[])
  order by job_queue_id, locked_at desc
),
resumed as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = running.locked_by, locked_at = running.locked_at
  from pg_catalog.unnest($1::integer[]) as wanted (id) left join running on running.job_queue_id = wanted.id
  where queue.id = wanted.id and queue.locked_by = 'py:hold'
  returning queue.id
),
returned as (
  update "graphile_worker"._private_py_queue_holds hold
  set until = now(), job_id = running.id
  from running
  where hold.queue_id = running.job_queue_id and hold.queue_id = any ($1)
  returning hold.queue_id
),
ended as (
  delete from "graphile_worker"._private_py_queue_holds hold
  where hold.queue_id = any ($1) and hold.queue_id not in (select job_queue_id from running)
  returning hold.queue_id
),
told_all as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from resumed having count(*) > 0
),
told_us as materialized (select pg_notify('worker:py', '{"pauses":1}'))
select (select count(*) from returned) + (select count(*) from ended) as queues
from told_us left join told_all on true

-- statement control/held_queue
select hold.queue_id, hold.holder
from "graphile_worker"._private_py_queue_holds hold
join "graphile_worker"._private_job_queues queue on queue.id = hold.queue_id
where queue.queue_name = $1::text and hold.job_id is null
for update of hold

-- statement control/hold_queue
with
earlier as materialized (
  select hold.queue_id
  from "graphile_worker"._private_py_queue_holds hold
  join "graphile_worker"._private_job_queues queue on queue.id = hold.queue_id
  where queue.queue_name = $1::text
  for update of hold
),
known as materialized (
  select id, locked_by
  from "graphile_worker"._private_job_queues
  where queue_name = $1::text and (select count(*) from earlier) >= 0
  for update
),
locked as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = 'py:hold', locked_at = '9999-01-01 00:00:00+00'
  from known
  where queue.id = known.id
  returning queue.id, known.locked_by as holder
),
created as (
  insert into "graphile_worker"._private_job_queues (queue_name, locked_by, locked_at)
  select $1::text, 'py:hold', '9999-01-01 00:00:00+00'::timestamptz
  where not exists (select from known)
  on conflict (queue_name) do update set locked_by = excluded.locked_by, locked_at = excluded.locked_at
  returning id
),
held as (
  insert into "graphile_worker"._private_py_queue_holds as hold (queue_id, until, reason, holder)
  select
    queue.id, coalesce($2::timestamptz, now() + $3::double precision * interval '1 second'), $4::text,
    nullif(queue.holder, 'py:hold')
  from (select id, holder from locked union all select id, null from created) queue
  on conflict (queue_id) do update set
    until = excluded.until,
    reason = excluded.reason,
    held_at = case when hold.until <= now() then excluded.held_at else hold.held_at end,
    holder = coalesce(excluded.holder, hold.holder),
    job_id = null
  returning reason, held_at, until
),
notified as materialized (select pg_notify('worker:py', '{"pauses":1}'))
select reason, date_part('epoch', held_at) as since, date_part('epoch', until) as until
from held cross join notified

-- statement control/left_jobs
select
  pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name,
  case when queue.id is null then task.identifier end as task_identifier,
  count(*) as jobs
from "graphile_worker"._private_jobs job
join "graphile_worker"._private_tasks task on task.id = job.task_id
left join "graphile_worker"._private_job_queues queue
  on queue.id = job.job_queue_id and queue.locked_by = 'py:hold'
where job.is_available and job.run_at <= coalesce($3::timestamptz, now())
  and task.identifier = any ($1::text[])
  and (queue.id is not null or '' = any ($2::text[]) or task.identifier = any ($2::text[]))
group by 1, 2
order by 1, 2

-- statement control/leftover_cancels
with forgotten as (
  delete from "graphile_worker"._private_py_cancels cancel
  where not exists (select from "graphile_worker"._private_jobs job where job.id = cancel.job_id)
)
select
    job.id,
    job.payload::text as payload,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    job.last_error,
    date_part('epoch', job.created_at) as created_at,
    date_part('epoch', job.updated_at) as updated_at,
    job.key,
    date_part('epoch', job.locked_at) as locked_at,
    job.revision,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id,
    job.locked_by,
  coalesce((
    select task.identifier from "graphile_worker"._private_tasks task where task.id = job.task_id
  ), '') as task_identifier
from "graphile_worker"._private_py_cancels cancel
join "graphile_worker"._private_jobs job on job.id = cancel.job_id
where job.locked_at is null
order by job.id
limit $1::integer

-- statement control/limit_lock_waits
with earlier as materialized (select pg_catalog.current_setting('lock_timeout'::text) as lock_timeout)
select earlier.lock_timeout
from earlier
where pg_catalog.set_config('lock_timeout'::text, $1::text, true) is not null

-- statement control/list_pauses
select
  'task' as kind, task as name, reason,
  date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from "graphile_worker"._private_py_pauses
where until is null or until > now()
union all
select 'queue', queue.queue_name, hold.reason, date_part('epoch', hold.held_at), date_part('epoch', hold.until)
from "graphile_worker"._private_py_queue_holds hold
join "graphile_worker"._private_job_queues queue on queue.id = hold.queue_id
where hold.job_id is null
order by 1 desc, 2

-- statement control/lock_jobs
select id
from "graphile_worker"._private_jobs
where id = any ($1::bigint[]) and locked_at is not null
order by id
for update

-- statement control/look
select
  'task' as kind, task as name, null::bigint as id, reason,
  date_part('epoch', paused_at) as since, date_part('epoch', until) as until,
  date_part('epoch', until - now()) as seconds
from "graphile_worker"._private_py_pauses
where until is null or until > now()
union all
select
  case when hold.job_id is null then 'queue' else 'ending' end, queue.queue_name, hold.queue_id, hold.reason,
  date_part('epoch', hold.held_at), date_part('epoch', hold.until), date_part('epoch', hold.until - now())
from "graphile_worker"._private_py_queue_holds hold
left join "graphile_worker"._private_job_queues queue on queue.id = hold.queue_id
union all
select 'wide', null, null, null, null, null, null
where exists (select from "graphile_worker"._private_py_tracks)
union all
select 'cancel', null, cancel.job_id, cancel.reason, null, null, null
from "graphile_worker"._private_py_cancels cancel
join "graphile_worker"._private_jobs job on job.id = cancel.job_id
where job.locked_by = $1::text
union all
select kind, job_id::text, id, reason, null, null, null
from "graphile_worker"._private_py_requests
where pool_id = $1::text and answer is null
union all
select
  case when exists (
    select
    from "graphile_worker"._private_py_cancels cancel
    left join "graphile_worker"._private_jobs job on job.id = cancel.job_id
    where job.locked_at is null and cancel.asked_at < now() - interval '2 seconds'
  ) then 'leftover' else 'asked' end,
  null, null, null, null, null, null
where exists (select from "graphile_worker"._private_py_cancels)

-- statement control/pause_task
with
over as (
  delete from "graphile_worker"._private_py_pauses where until <= now() and task <> $1::text
),
paused as (
  insert into "graphile_worker"._private_py_pauses as pause (task, until, reason)
  values ($1::text, coalesce($2::timestamptz, now() + $3::double precision * interval '1 second'), $4::text)
  on conflict (task) do update set
    until = excluded.until,
    reason = excluded.reason,
    paused_at = case when pause.until <= now() then excluded.paused_at else pause.paused_at end
  returning reason, paused_at, until
),
notified as materialized (select pg_notify('worker:py', '{"pauses":1}'))
select reason, date_part('epoch', paused_at) as since, date_part('epoch', until) as until
from paused cross join notified

-- statement control/resume_task
with
resumed as (
  delete from "graphile_worker"._private_py_pauses where task = $1::text
  returning until
),
notified as materialized (select pg_notify('worker:py', '{"pauses":1}') from resumed)
select exists (select from resumed where until is null or until > now()) as was_paused
from (select count(*) from notified) always

-- statement control/running_jobs
select job.id
from "graphile_worker"._private_jobs job
join unnest($1::integer[], $2::text[]) as held (queue_id, holder)
  on held.queue_id = job.job_queue_id and held.holder = job.locked_by
where job.locked_at is not null
order by job.id

-- statement control/settle_queues
with
settled as materialized (
  select hold.queue_id, queue.locked_by, queue.locked_at
  from "graphile_worker"._private_py_queue_holds hold
  left join "graphile_worker"._private_job_queues queue on queue.id = hold.queue_id
  where hold.job_id is not null
    and not exists (
      select from "graphile_worker"._private_jobs job
      where job.id = hold.job_id and job.locked_by = hold.holder
    )
  order by hold.queue_id
  for update of hold skip locked
),
stuck as materialized (
  select settled.queue_id, settled.locked_by, settled.locked_at
  from settled
  where settled.locked_at is not null and settled.locked_by <> 'py:hold'
    and not exists (
      select from "graphile_worker"._private_jobs job
      where job.job_queue_id = settled.queue_id and job.locked_at is not null
    )
),
freed as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  from stuck
  where queue.id = stuck.queue_id and queue.locked_by = stuck.locked_by and queue.locked_at = stuck.locked_at
  returning queue.id
),
ended as (
  delete from "graphile_worker"._private_py_queue_holds hold
  using settled
  where hold.queue_id = settled.queue_id and hold.job_id is not null
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from freed having count(*) > 0
)
select count(*) as queues from freed left join notified on true

-- statement control/wait
select pg_catalog.pg_sleep($1::double precision)

-- statement cron/known_crontabs
select identifier, known_since, last_execution
from "graphile_worker"._private_known_crontabs as known_crontabs;

-- statement cron/lock_crontabs
select identifier
from "graphile_worker"._private_known_crontabs as known_crontabs
where identifier = any($1::text[])
order by identifier
for update;

-- statement cron/register_crontabs
insert into "graphile_worker"._private_known_crontabs (identifier, known_since)
select distinct identifier, $2::timestamptz
from pg_catalog.unnest($1::text[]) as new_items (identifier)
order by identifier -- the same order in every worker, so that two of them cannot deadlock
on conflict do nothing;

-- statement cron/schedule_cron_jobs
with due as (
  select *
  from unnest(
    $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::text[], $12::text[]
  )
    with ordinality
    as due (
      identifier, task, payload, queue_name, run_at, delay, max_attempts, job_key, priority, flags, job_key_mode,
      position
    )
),
claimed as (
  insert into "graphile_worker"._private_known_crontabs as known_crontabs
    (identifier, known_since, last_execution)
  select distinct due.identifier, $1::timestamptz, $1::timestamptz
  from due
  order by due.identifier -- the same order in every worker, so that two of them cannot deadlock
  on conflict (identifier) do update
    set last_execution = excluded.last_execution
    where known_crontabs.last_execution is null
      or known_crontabs.last_execution < excluded.last_execution
  returning known_crontabs.identifier
)
, added as materialized (
  select ours.identifier, ours.position, job.id as job_id
  from (
    select due.*
    from due
    inner join claimed on claimed.identifier = due.identifier
    where due.task is not null
    order by due.position
    offset 0 -- keeps the sort below the calls, so that jobs are added in this order
  ) as ours
  cross join lateral "graphile_worker".add_job(
    identifier => ours.task,
    payload => ours.payload::json,
    queue_name => ours.queue_name,
    run_at => coalesce(
      ours.run_at::timestamptz, now() + pg_catalog.make_interval(secs => ours.delay::float8), $1::timestamptz
    ),
    max_attempts => ours.max_attempts::integer,
    job_key => ours.job_key,
    priority => ours.priority::integer,
    flags => ours.flags::text[],
    job_key_mode => ours.job_key_mode
  ) as job
)
select added.identifier, added.job_id from added order by added.position

-- statement cron/schedule_unique_cron_jobs
with due as (
  select *
  from unnest(
    $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
    $11::text[], $12::text[]
  )
    with ordinality
    as due (
      identifier, task, payload, queue_name, run_at, delay, max_attempts, job_key, priority, flags, job_key_mode,
      position
    )
),
claimed as (
  insert into "graphile_worker"._private_known_crontabs as known_crontabs
    (identifier, known_since, last_execution)
  select distinct due.identifier, $1::timestamptz, $1::timestamptz
  from due
  order by due.identifier -- the same order in every worker, so that two of them cannot deadlock
  on conflict (identifier) do update
    set last_execution = excluded.last_execution
    where known_crontabs.last_execution is null
      or known_crontabs.last_execution < excluded.last_execution
  returning known_crontabs.identifier
)
, added as materialized (
  select ours.identifier, ours.position, (added_job.job).id as job_id
  from (
    select due.*
    from due
    inner join claimed on claimed.identifier = due.identifier
    where due.task is not null
    order by due.position
    offset 0 -- keeps the sort below the calls, so that jobs are added in this order
  ) as ours
  cross join lateral "graphile_worker"._private_py_add_unique_job(
    ours.task,
    ours.payload::json,
    ours.queue_name,
    coalesce(
      ours.run_at::timestamptz, now() + pg_catalog.make_interval(secs => ours.delay::float8), $1::timestamptz
    ),
    ours.max_attempts::integer,
    ours.job_key,
    ours.priority::integer,
    ours.flags::text[],
    ours.job_key_mode,
    true
  ) as added_job
)
select added.identifier, added.job_id from added order by added.position

-- statement fetch/get_announced_jobs
update "graphile_worker"._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (
  array(
    select next.ctid
    from "graphile_worker"._private_jobs next
    where next.is_available and next.job_queue_id is null
      and next.priority = (
        select lowest.priority
        from (
          select priority from "graphile_worker"._private_jobs
          where is_available and job_queue_id is null
          order by priority limit 1
        ) lowest
        cross join (
          select priority from "graphile_worker"._private_jobs
          where is_available and job_queue_id is null
          order by priority desc limit 1
        ) highest
        where lowest.priority = highest.priority
          and not exists (
            select from "graphile_worker"._private_jobs where is_available and job_queue_id is not null
          )
      )
      and next.run_at <= coalesce($5::timestamptz, now())
      and next.task_id = any ((select $2::text::integer[])::integer[])
      and ($4::text[] is null or next.flags is null or not next.flags ?| $4)
    order by next.run_at
    limit $3::integer
    for update skip locked
  )
)
returning
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id

-- statement fetch/get_fair_jobs
with recursive
task (ids) as materialized (select $2::text::integer[]),
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
plain_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
,
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
walk (id, step) as (
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > $6::integer
    order by job.job_queue_id limit 1
  ), 1
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  ), last.step + 1
  from walk last where last.id is not null and last.step < pg_catalog.int4larger(4 * $3, 200)
),
rest (id, step) as (
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id <= $6
    order by job.job_queue_id limit 1
  ), (select pg_catalog.max(step) from walk) + 1
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id and job.job_queue_id <= $6
    order by job.job_queue_id limit 1
  ), last.step + 1
  from rest last where last.id is not null and last.step < pg_catalog.int4larger(4 * $3, 200)
),
visited as materialized (
  select id, step from walk where id is not null
  union all
  select id, step from rest where id is not null and step <= pg_catalog.int4larger(4 * $3, 200)
),
queued as materialized (
  select job.place, queue.id as job_queue_id, queue.id as old_queue_id, visited.step, 1 as turn
  from (select * from visited order by step) visited
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = visited.id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[queue.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
    for update skip locked
  ) job
  limit $3
),
chosen as materialized (
  select place, job_queue_id, old_queue_id, step from (
    select place, job_queue_id, old_queue_id, step, turn from queued
    union all
    select place, null, null, null, (row_number() over (order by priority, run_at))::integer from plain
  ) candidate
  order by turn, step
  limit $3
),
chosen_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
  where queue.id = any (array(select job_queue_id from chosen where job_queue_id is not null))
),
moved as materialized (
  select pg_catalog.jsonb_object_agg(place::text, job_queue_id) as queues from chosen where job_queue_id <> old_queue_id
),
taken as (
  update "graphile_worker"._private_jobs job
  set
    attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now()),
    job_queue_id = coalesce(((select queues from moved) ->> job.ctid::text)::integer, job.job_queue_id)
  where job.ctid = any (array(select place from chosen))
  returning job.*
)
select
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
  , coalesce(
    (select old_queue_id from chosen where step is not null order by step desc limit 1),
    (select visited.id from visited order by visited.step desc limit 1),
    0
  ) as last_queue
  , (select count(*) from visited) < pg_catalog.int4larger(4 * $3, 200) as is_whole
from (select) always left join taken on true

-- statement fetch/get_jobs
with recursive
task (ids) as materialized (select $2::text::integer[]),
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
plain_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
,
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
queue_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority > last.priority
    order by job.priority limit 1
  )
  from queue_priority last where last.priority is not null
),
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        (
          select case
            when queue_priority.priority < cutoff.priority then 'infinity'
            when queue_priority.priority = cutoff.priority then cutoff.run_at
            else '-infinity'
          end
          from cutoff
        )
      )
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
head as materialized (
  select distinct on (job_queue_id) place, job_queue_id, priority, run_at
  from examined order by job_queue_id, priority, run_at
),
queued as materialized (
  select head.place, head.job_queue_id, head.priority, head.run_at
  from (select * from head order by priority, run_at) head
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = head.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
other_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
      and (select count(*) from examined) >= 2 * $3 + 40 and not exists (select from queued)
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from other_queue last where last.id is not null
),
other_head as materialized (
  select next.place, next.job_queue_id, next.priority, next.run_at
  from (
    select id from other_queue
    limit (
      select case
        when exists (
          select from head
          join "graphile_worker"._private_job_queues queue
            on queue.id = head.job_queue_id and queue.is_available
        ) then 2 * $3 + 40
      end
    )
  ) other_queue
  join "graphile_worker"._private_job_queues queue on queue.id = other_queue.id and queue.is_available
  cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other_queue.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = other.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id from (
    select place, job_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
,
chosen_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
  where queue.id = any (array(select job_queue_id from chosen where job_queue_id is not null))
)
update "graphile_worker"._private_jobs job
set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from chosen))
returning
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id

-- statement fetch/get_jobs_above_watermarks
with recursive
task (ids) as materialized (select $2::text::integer[]),
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from unnest($6::smallint[], $7::smallint[], $8::double precision[]) as range (low, high, since)
  cross join lateral (
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.run_at
      limit $3::integer
      for update skip locked
    ) known
    union all
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
queue_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.priority > last.priority
    order by job.priority limit 1
  )
  from queue_priority last where last.priority is not null
),
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority
      and job.run_at <= least(
        coalesce($5::timestamptz, now()),
        (
          select case
            when queue_priority.priority < cutoff.priority then 'infinity'
            when queue_priority.priority = cutoff.priority then cutoff.run_at
            else '-infinity'
          end
          from cutoff
        )
      )
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
head as materialized (
  select distinct on (job_queue_id) place, job_queue_id, priority, run_at
  from examined order by job_queue_id, priority, run_at
),
queued as materialized (
  select head.place, head.job_queue_id, head.priority, head.run_at
  from (select * from head order by priority, run_at) head
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = head.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
other_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
      and (select count(*) from examined) >= 2 * $3 + 40 and not exists (select from queued)
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from other_queue last where last.id is not null
),
other_head as materialized (
  select next.place, next.job_queue_id, next.priority, next.run_at
  from (
    select id from other_queue
    limit (
      select case
        when exists (
          select from head
          join "graphile_worker"._private_job_queues queue
            on queue.id = head.job_queue_id and queue.is_available
        ) then 2 * $3 + 40
      end
    )
  ) other_queue
  join "graphile_worker"._private_job_queues queue on queue.id = other_queue.id and queue.is_available
  cross join lateral (
    select job.ctid as place, job.job_queue_id, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other_queue.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.id = other.job_queue_id and queue.is_available
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id from (
    select place, job_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
,
chosen_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
  where queue.id = any (array(select job_queue_id from chosen where job_queue_id is not null))
)
update "graphile_worker"._private_jobs job
set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from chosen))
returning
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id

-- statement fetch/get_plain_jobs
with recursive
task (ids) as materialized (select $2::text::integer[]),
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
plain_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
,
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
waiting_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join "graphile_worker"._private_job_queues queue on queue.id = waiting.id
)
update "graphile_worker"._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from plain where not (select may_be_next from queues)))
returning
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id

-- statement fetch/get_plain_jobs_above_watermarks
with recursive
task (ids) as materialized (select $2::text::integer[]),
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
plain as materialized (
  select found.place, null::integer as job_queue_id, found.priority, found.run_at
  from unnest($6::smallint[], $7::smallint[], $8::double precision[]) as range (low, high, since)
  cross join lateral (
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.run_at
      limit $3::integer
      for update skip locked
    ) known
    union all
    select * from (
      select job.ctid as place, job.priority, job.run_at
      from "graphile_worker"._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
        and job.run_at <= coalesce($5::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
waiting_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join "graphile_worker"._private_job_queues queue on queue.id = waiting.id
)
update "graphile_worker"._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($5::timestamptz, now())
where job.ctid = any (array(select place from plain where not (select may_be_next from queues)))
returning
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id

-- statement fetch/list_priorities
with recursive
plain_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
,
listed as materialized (select priority from plain_priority where priority is not null limit $1::integer)
select listed.priority, date_part('epoch', now()) as now
from (select) as always left join listed on true

-- statement fetch/may_queues_be_next
with recursive
waiting_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join "graphile_worker"._private_job_queues queue on queue.id = waiting.id
)
select may_be_next from queues

-- statement history/add_partitions
select count(*) filter (
  where "graphile_worker"._private_py_add_partition($1::text::regclass, day.day)
) as added
from (
  select distinct
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
    as day
  from (
    select kept.keep_seconds, now() + interval '1 day' * ahead.days::double precision as kept_at
    from pg_catalog.unnest($2::double precision[]) as kept (keep_seconds)
    cross join generate_series(0, $3::integer) as ahead (days)
  ) term
) day

-- statement history/drop_partitions
select "graphile_worker"._private_py_drop_partitions($1::text::regclass, (now() at time zone 'UTC')::date)

-- statement history/ends_of_job
select
  history.job_id,
  coalesce(name.identifier, task.identifier, '') as task_identifier,
  history.state, history.queue_name, history.job_key, history.priority, history.attempts, history.max_attempts,
  history.created_at, history.run_at, history.started_at, history.finished_at, history.duration, history.pool_id,
  history.flags::text, history.payload::text, history.result::text, history.error
from "graphile_worker"._private_py_history history
left join "graphile_worker"._private_py_task_names name on name.id = history.task_id
left join "graphile_worker"._private_tasks task on task.id = history.task_id
where history.job_id = $1::bigint
order by history.finished_at desc

-- statement history/errors_of_job
select
  error.job_id, error.attempt, coalesce(name.identifier, task.identifier, '') as task_identifier, error.failed_at,
  error.duration, error.is_final, error.error_type, error.message, error.traceback, error.fingerprint, error.pool_id,
  error.version
from (
  select * from "graphile_worker"._private_py_errors
  where job_id = $1::bigint
  order by failed_at desc, attempt desc
  limit $2::integer
) error
left join "graphile_worker"._private_py_task_names name on name.id = error.task_id
left join "graphile_worker"._private_tasks task on task.id = error.task_id
order by error.failed_at desc, error.attempt desc

-- statement history/get_progress
select share, note, data::text, updated_at
from "graphile_worker"._private_py_progress where job_id = $1::bigint

-- statement history/keep_recovered
with failed as (
  select
    job.*,
    ($2::double precision[])[pg_catalog.array_position($1::bigint[], job.id)] as end_seconds
  from "graphile_worker"._private_jobs job
  where job.id = any ($1::bigint[]) and not job.is_available and job.locked_at is null
),
failed_end as (
  insert into "graphile_worker"._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, finished_at, flags,
    error, expires_on
  )
  select
    id, task_id, 'failed',
  case
    when job.job_queue_id is not null
      then (
        select pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') from "graphile_worker"._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end
    , key, priority, attempts, max_attempts, created_at, run_at, now(), flags, last_error,
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
  from (select failed.*, failed.end_seconds as keep_seconds, now() as kept_at from failed) job
  where keep_seconds is not null
),
error as (
  insert into "graphile_worker"._private_py_errors (
    job_id, attempt, task_id, failed_at, is_final, error_type, message, fingerprint, expires_on
  )
  select
    id, attempts, task_id, now(), true, 'WorkerDied', last_error, 'worker-died',
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
  from (select failed.*, $3::double precision as keep_seconds, now() as kept_at from failed) job
  where keep_seconds is not null
)
select pg_notify(
  'worker:ended', pg_catalog.json_build_object('schema', $4::text, 'ids', null)::text
)
from failed where flags is not null
limit 1

-- statement history/keep_removed
with removed as (
  select *
  from unnest(
    $3::bigint[], $4::integer[], $5::integer[], $6::text[], $7::integer[], $8::integer[], $9::integer[],
    $10::double precision[], $11::double precision[], $12::text[], $13::text[], $14::text[], $15::double precision[]
  ) as job (
    id, task_id, job_queue_id, key, priority, attempts, max_attempts, created_at, run_at, flags, payload, error,
    keep_seconds
  )
),
kept as (
  insert into "graphile_worker"._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, finished_at, flags,
    payload, error, expires_on
  )
  select
    id, task_id, $1::text,
  case
    when job.job_queue_id is not null
      then (
        select pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') from "graphile_worker"._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end
    , key, priority::smallint, attempts::smallint, max_attempts::smallint, to_timestamp(created_at), to_timestamp(run_at),
    now(), flags::jsonb, payload::json, error,
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
  from (select removed.*, now() as kept_at from removed) job
)
select pg_notify(
  'worker:ended',
  pg_catalog.json_build_object(
    'schema', $2::text, 'ids', case when count(*) <= 300 then pg_catalog.json_agg(id) end
  )::text
)
from removed

-- statement history/list_ends
select
  history.job_id,
  coalesce(name.identifier, task.identifier, '') as task_identifier,
  history.state, history.queue_name, history.job_key, history.priority, history.attempts, history.max_attempts,
  history.created_at, history.run_at, history.started_at, history.finished_at, history.duration, history.pool_id,
  history.flags::text, history.payload::text, history.result::text, history.error
from (
  select history.*
  from "graphile_worker"._private_py_history history
  where history.finished_at >= coalesce($1::timestamptz, '-infinity')
    and history.finished_at <= least(coalesce($2::timestamptz, 'infinity'), coalesce($3::timestamptz, 'infinity'))
    and ($3 is null or (history.finished_at, history.job_id) < ($3, $4::bigint))
  order by history.finished_at desc, history.job_id desc
  limit $5::integer
) history
left join "graphile_worker"._private_py_task_names name on name.id = history.task_id
left join "graphile_worker"._private_tasks task on task.id = history.task_id
order by history.finished_at desc, history.job_id desc

-- statement history/list_ends_of_task
select
  history.job_id,
  coalesce(name.identifier, task.identifier, '') as task_identifier,
  history.state, history.queue_name, history.job_key, history.priority, history.attempts, history.max_attempts,
  history.created_at, history.run_at, history.started_at, history.finished_at, history.duration, history.pool_id,
  history.flags::text, history.payload::text, history.result::text, history.error
from (
  select found.*
  from (
    select id from "graphile_worker"._private_py_task_names where identifier = $6::text
    union
    select id from "graphile_worker"._private_tasks where identifier = $6
  ) wanted
  cross join lateral (
    select history.*
    from "graphile_worker"._private_py_history history
    where history.task_id = any (array[wanted.id]) -- not an equality, which would make the order below redundant
      and history.finished_at >= coalesce($1::timestamptz, '-infinity')
      and history.finished_at <= least(coalesce($2::timestamptz, 'infinity'), coalesce($3::timestamptz, 'infinity'))
      and ($3 is null or (history.finished_at, history.job_id) < ($3, $4::bigint))
    order by history.task_id desc, history.finished_at desc, history.job_id desc
    limit $5::integer
  ) found
  order by found.finished_at desc, found.job_id desc
  limit $5
) history
left join "graphile_worker"._private_py_task_names name on name.id = history.task_id
left join "graphile_worker"._private_tasks task on task.id = history.task_id
order by history.finished_at desc, history.job_id desc

-- statement history/list_error_groups
select
  known.fingerprint, coalesce(name.identifier, task.identifier, '') as task_identifier, known.error_type, known.message,
  known.place, known.first_at, known.last_at, known.errors, known.permanent, known.last_job_id, known.first_version,
  known.last_version
from "graphile_worker"._private_py_error_groups known
left join "graphile_worker"._private_py_task_names name on name.id = known.task_id
left join "graphile_worker"._private_tasks task on task.id = known.task_id
where known.last_at >= coalesce($1::timestamptz, '-infinity')
  and known.last_at < coalesce($4::timestamptz, 'infinity')
  and ($2::text is null or coalesce(name.identifier, task.identifier) = $2)
order by known.last_at desc
limit $3::integer

-- statement history/list_errors
select
  error.job_id, error.attempt, coalesce(name.identifier, task.identifier, '') as task_identifier, error.failed_at,
  error.duration, error.is_final, error.error_type, error.message, error.traceback, error.fingerprint, error.pool_id,
  error.version
from (
  select * from "graphile_worker"._private_py_errors
  where failed_at >= coalesce($1::timestamptz, '-infinity') and failed_at < coalesce($2::timestamptz, 'infinity')
  order by failed_at desc
  limit $3::integer
) error
left join "graphile_worker"._private_py_task_names name on name.id = error.task_id
left join "graphile_worker"._private_tasks task on task.id = error.task_id
order by error.failed_at desc

-- statement history/list_errors_of_group
select
  error.job_id, error.attempt, coalesce(name.identifier, task.identifier, '') as task_identifier, error.failed_at,
  error.duration, error.is_final, error.error_type, error.message, error.traceback, error.fingerprint, error.pool_id,
  error.version
from (
  select * from "graphile_worker"._private_py_errors
  where fingerprint = $4::text
    and failed_at >= coalesce($1::timestamptz, '-infinity') and failed_at < coalesce($2::timestamptz, 'infinity')
  order by failed_at desc
  limit $3::integer
) error
left join "graphile_worker"._private_py_task_names name on name.id = error.task_id
left join "graphile_worker"._private_tasks task on task.id = error.task_id
order by error.failed_at desc

-- statement history/move_failed
with old as materialized (
  select job.id
  from "graphile_worker"._private_jobs job
  where not job.is_available and job.locked_at is null
    and
    greatest(
        date_part('epoch', updated_at),
        case
            when date_part('epoch', run_at) -
  exp(least(attempts, 10)::double precision)
                <= date_part('epoch', now())
            then date_part('epoch', run_at) -
  exp(least(attempts, 10)::double precision)
        end
    )
    < date_part('epoch', now()) - $1::double precision
  order by job.id
  limit $3::integer
  for update skip locked
),
moved as (
  delete from "graphile_worker"._private_jobs job
  using old
  where job.id = old.id
  returning job.*
),
kept as (
  insert into "graphile_worker"._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, finished_at, flags,
    error, expires_on
  )
  select
    id, task_id, 'failed',
  case
    when job.job_queue_id is not null
      then (
        select pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') from "graphile_worker"._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end
    , key, priority, attempts, max_attempts, created_at, run_at,
    to_timestamp(
    greatest(
        date_part('epoch', updated_at),
        case
            when date_part('epoch', run_at) -
  exp(least(attempts, 10)::double precision)
                <= date_part('epoch', now())
            then date_part('epoch', run_at) -
  exp(least(attempts, 10)::double precision)
        end
    )
    )
    , flags, last_error,
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
  from (select moved.*, $2::double precision as keep_seconds, now() as kept_at from moved) job
  where not exists (
    select from "graphile_worker"._private_py_history known
    where known.job_id = job.id and known.state = 'failed'
  )
)
select count(*) from moved

-- statement history/name_tasks
insert into "graphile_worker"._private_py_task_names (id, identifier)
select id, identifier from "graphile_worker"._private_tasks where identifier = any ($1::text[])
on conflict (id) do nothing

-- statement history/ping
select pg_notify($1::text, pg_catalog.json_build_object('ping', $2::text)::text)

-- statement history/purge_error_groups
with old as (
  select fingerprint from "graphile_worker"._private_py_error_groups
  where last_at < now() - interval '1 second' * $1::double precision
  order by last_at
  limit $2::integer
),
purged as (
  delete from "graphile_worker"._private_py_error_groups known
  using old where known.fingerprint = old.fingerprint
  returning known.fingerprint
)
select count(*) from purged

-- statement history/purge_progress
delete from "graphile_worker"._private_py_progress progress
where progress.updated_at < now() - interval '1 minute'
  and not exists (
    select from "graphile_worker"._private_jobs job where job.id = progress.job_id and job.locked_at is not null
  )

-- statement history/read_in_order
select
  pg_catalog.set_config('enable_seqscan', 'off', true),
  pg_catalog.set_config('enable_bitmapscan', 'off', true),
  pg_catalog.set_config('enable_sort', 'off', true),
  pg_catalog.set_config('jit', 'off', true)

-- statement history/states_of_jobs
select
  wanted.job_id,
  case
    when job.id is not null and (job.locked_at is not null or job.is_available) then 'pending'
    when job.id is not null then 'failed'
    else coalesce(last_end.state, 'gone')
  end as state,
  coalesce(job.last_error, last_end.error) as error,
  coalesce(job.attempts, last_end.attempts) as attempts,
  last_end.result
from pg_catalog.unnest($1::bigint[]) as wanted (job_id)
left join lateral (
  select id, locked_at, is_available, last_error, attempts
  from "graphile_worker"._private_jobs where id = wanted.job_id
  limit 1 -- keeps the planner from reading the whole table once
) job on true
left join lateral (
  select state, error, attempts, result::text as result
  from "graphile_worker"._private_py_history
  where job_id = wanted.job_id and job.id is null
  order by date_part('epoch', finished_at) desc -- not the column, whose index would be read to its end
  limit 1
) last_end on true

-- statement history/states_without_history
select
  wanted.job_id,
  case
    when job.id is null then 'gone'
    when job.locked_at is not null or job.is_available then 'pending'
    else 'failed'
  end as state,
  job.last_error as error,
  job.attempts,
  null::text as result
from pg_catalog.unnest($1::bigint[]) as wanted (job_id)
left join "graphile_worker"._private_jobs job on job.id = wanted.job_id

-- statement history/whole_job
with job as (
  select job.*, task.identifier
  from "graphile_worker"._private_jobs job
  join "graphile_worker"._private_tasks task on task.id = job.task_id
  where job.id = $1::bigint
),
ended as (
  select history.*, coalesce(name.identifier, task.identifier) as identifier
  from "graphile_worker"._private_py_history history
left join "graphile_worker"._private_py_task_names name on name.id = history.task_id
left join "graphile_worker"._private_tasks task on task.id = history.task_id
  where history.job_id = $1::bigint
  order by history.finished_at desc
  limit 1
),
failed as (
  select
    pg_catalog.json_agg(
      pg_catalog.json_build_object(
        'error_type', error.error_type, 'message', error.message, 'traceback', error.traceback,
        'pool_id', error.pool_id, 'failed_at', date_part('epoch', error.failed_at), 'duration', error.duration
      ) order by error.failed_at, error.attempt
    )::text as errors
  from "graphile_worker"._private_py_errors error
  where error.job_id = $1::bigint
)
select
  job.id is not null as is_in_queue,
  coalesce(job.identifier, ended.identifier) as task_identifier,
  coalesce(job.payload::text, ended.payload::text) as payload,
  coalesce(job.priority, ended.priority)::integer as priority,
  date_part('epoch', coalesce(job.created_at, ended.created_at)) as created_at,
  date_part('epoch', coalesce(job.run_at, ended.run_at)) as run_at,
  job.attempts >= job.max_attempts as is_last_attempt,
  date_part('epoch', job.locked_at) as locked_at,
  job.locked_by,
  job.last_error,
  ended.state,
  date_part('epoch', ended.started_at) as started_at,
  date_part('epoch', ended.finished_at) as finished_at,
  ended.pool_id,
  ended.result::text as result,
  ended.error,
  failed.errors
from failed
left join job on true
left join ended on true
where job.id is not null or ended.job_id is not null

-- statement history/write_error_groups
insert into "graphile_worker"._private_py_error_groups as known (
  fingerprint, task_id, error_type, message, place, first_at, last_at, errors, permanent, last_job_id, first_version,
  last_version
)
select
  fingerprint, task_id, error_type, message, place, now() - interval '1 second' * first_ago,
  now() - interval '1 second' * last_ago, errors, permanent, job_id, $11::text, $11
from unnest(
  $1::text[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::double precision[], $7::double precision[],
  $8::bigint[], $9::bigint[], $10::bigint[]
) as counted (
  fingerprint, task_id, error_type, message, place, first_ago, last_ago, errors, permanent, job_id
)
order by fingerprint
on conflict (fingerprint) do update
set
  message = excluded.message,
  last_at = greatest(known.last_at, excluded.last_at),
  errors = known.errors + excluded.errors,
  permanent = known.permanent + excluded.permanent,
  last_job_id = excluded.last_job_id,
  last_version = excluded.last_version

-- statement history/write_progress
with ended as (
  delete from "graphile_worker"._private_py_progress where job_id = any ($5::bigint[])
)
insert into "graphile_worker"._private_py_progress (job_id, share, note, data, updated_at)
select job_id, share, note, data::json, now()
from unnest($1::bigint[], $2::double precision[], $3::text[], $4::text[]) as report (job_id, share, note, data)
order by job_id
on conflict (job_id) do update
set share = excluded.share, note = excluded.note, data = excluded.data, updated_at = excluded.updated_at

-- statement hold/delete_adjacent_jobs
delete from "graphile_worker"._private_jobs
where id between $2::bigint and $3::bigint
  and (id in (select pg_catalog.unnest($1::bigint[]))) is true

-- statement hold/delete_jobs
delete from "graphile_worker"._private_jobs where id = any ($1::bigint[])

-- statement hold/get_held_jobs
with recursive
task (ids) as materialized (select $2::text::integer[]),
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid
    from (
      select txid_snapshot_xip(snapshot)
      from txid_current_snapshot() as snapshot
      union all
      select generate_series(txid_snapshot_xmax(snapshot), txid_snapshot_xmax(snapshot) + 31::bigint)
      from txid_current_snapshot() as snapshot
    ) as running (number)
  )
),
plain_priority (priority) as (
  (
    select priority from "graphile_worker"._private_jobs
    where is_available and job_queue_id is null
    order by priority limit 1
  )
  union all
  select (
    select job.priority from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is null and job.priority > last.priority
    order by job.priority limit 1
  )
  from plain_priority last where last.priority is not null
)
,
waiting_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join "graphile_worker"._private_job_queues queue on queue.id = waiting.id
)
select
  found.id, found.payload::text, found.priority, date_part('epoch', found.run_at), found.attempts + 1, found.max_attempts,
  found.last_error, date_part('epoch', nullif(found.created_at, found.run_at)),
  date_part('epoch', nullif(found.updated_at, found.created_at)),
  found.key, date_part('epoch', coalesce($4::timestamptz, now())), found.revision, found.flags::text, found.task_id,
  found.job_queue_id
from plain_priority cross join lateral (
  select job.*
  from "graphile_worker"._private_jobs job
  where job.is_available and job.job_queue_id is null
    and job.priority = plain_priority.priority and job.run_at <= coalesce($4::timestamptz, statement_timestamp())
    and job.task_id = any ((select ids from task)::integer[])
    and ($3::text[] is null or job.flags is null or not job.flags ?| $3)
    and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
  order by job.run_at
  limit $1::integer
  for update skip locked
) found
where not (select may_be_next from queues)
limit $1

-- statement hold/get_held_jobs_above_watermarks
with recursive
task (ids) as materialized (select $2::text::integer[]),
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid
    from (
      select txid_snapshot_xip(snapshot)
      from txid_current_snapshot() as snapshot
      union all
      select generate_series(txid_snapshot_xmax(snapshot), txid_snapshot_xmax(snapshot) + 31::bigint)
      from txid_current_snapshot() as snapshot
    ) as running (number)
  )
),
waiting_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join "graphile_worker"._private_job_queues queue on queue.id = waiting.id
)
select
  found.id, found.payload::text, found.priority, date_part('epoch', found.run_at), found.attempts + 1, found.max_attempts,
  found.last_error, date_part('epoch', nullif(found.created_at, found.run_at)),
  date_part('epoch', nullif(found.updated_at, found.created_at)),
  found.key, date_part('epoch', coalesce($4::timestamptz, now())), found.revision, found.flags::text, found.task_id,
  found.job_queue_id
from unnest($5::smallint[], $6::smallint[], $7::double precision[]) as range (low, high, since)
cross join lateral (
  select * from (
    select job.*
    from "graphile_worker"._private_jobs job
    where range.low = range.high and job.is_available and job.job_queue_id is null
      and job.priority = range.low and job.run_at >= to_timestamp(range.since)
      and job.run_at <= coalesce($4::timestamptz, statement_timestamp())
      and job.task_id = any ((select ids from task)::integer[])
      and ($3::text[] is null or job.flags is null or not job.flags ?| $3)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $1::integer
    for update skip locked
  ) known
  union all
  select * from (
    select job.*
    from "graphile_worker"._private_jobs job
    where range.low < range.high and job.is_available and job.job_queue_id is null
      and job.priority between range.low and range.high
      and job.run_at <= coalesce($4::timestamptz, statement_timestamp())
      and job.task_id = any ((select ids from task)::integer[])
      and ($3::text[] is null or job.flags is null or not job.flags ?| $3)
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.priority, job.run_at
    limit $1::integer
    for update skip locked
  ) gap
) found
where not (select may_be_next from queues)
limit $1

-- statement hold/get_tied_jobs
with recursive
task (ids) as materialized (select $2::text::integer[]),
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid
    from (
      select txid_snapshot_xip(snapshot)
      from txid_current_snapshot() as snapshot
      union all
      select generate_series(txid_snapshot_xmax(snapshot), txid_snapshot_xmax(snapshot) + 31::bigint)
      from txid_current_snapshot() as snapshot
    ) as running (number)
  )
),
waiting_queue (id) as (
  (
    select job_queue_id from "graphile_worker"._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join "graphile_worker"._private_job_queues queue on queue.id = waiting.id
)
,
urgent as materialized (
  select
  from unnest($8::smallint[], $9::smallint[], $10::double precision[]) as range (low, high, since)
  cross join lateral (
    (
      select
      from "graphile_worker"._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
      order by job.priority, job.run_at
      limit 1
    )
    union all
    (
      select
      from "graphile_worker"._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at < case
          when range.low < $5::smallint then 'infinity'::timestamptz else to_timestamp($6::double precision)
        end
      order by job.run_at
      limit 1
    )
  ) first
  limit 1
),
start (id) as materialized (
  select greatest(look.id - greatest($1::bigint / 8::bigint, 1::bigint), $7::bigint)
  from pg_catalog.generate_series(
    $7 + 1::bigint, $7 + 8::bigint * $1::bigint, greatest($1::bigint / 8::bigint, 1::bigint)
  ) as look (id)
  cross join lateral (
    select
    from "graphile_worker"._private_jobs job
    where job.id >= look.id and job.id < look.id + 10::bigint and (job.is_available) is true
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    limit 1
  ) free
  limit 1
)
select
  found.id, found.payload::text, found.priority, date_part('epoch', found.run_at), found.attempts + 1, found.max_attempts,
  found.last_error, date_part('epoch', nullif(found.created_at, found.run_at)),
  date_part('epoch', nullif(found.updated_at, found.created_at)),
  found.key, date_part('epoch', coalesce($4::timestamptz, now())), found.revision, found.flags::text, found.task_id,
  found.job_queue_id
from "graphile_worker"._private_jobs found
where found.id > (select id from start) and found.id <= (select id from start) + 4::bigint * $1::bigint
  and found.is_available and found.job_queue_id is null
  and found.priority = $5 and found.run_at = to_timestamp($6)
  and found.run_at <= coalesce($4::timestamptz, statement_timestamp())
  and found.task_id = any ((select ids from task)::integer[])
  and ($3::text[] is null or found.flags is null or not found.flags ?| $3)
  and (found.xmax = 0 or found.xmax <> all ((select transactions from other)::xid[]))
  and not exists (select from urgent) and not (select may_be_next from queues)
order by found.id
limit $1
for update of found skip locked

-- statement hold/has_backlog
select count(*) = $1::bigint
from (
  select
  from "graphile_worker"._private_jobs
  where is_available and job_queue_id is null and priority = 0::smallint and run_at <= now()
  limit $1
) waiting

-- statement hold/lock_jobs
update "graphile_worker"._private_jobs
set attempts = attempts + 1, locked_by = $1::text, locked_at = coalesce($3::timestamptz, now())
where id = any ($2::bigint[])

-- statement hold/settle_jobs
with
wanted as materialized (
  select id, attempts from unnest($2::bigint[], $3::integer[]) as wanted (id, attempts)
),
free as materialized (
  select job.id
  from wanted join "graphile_worker"._private_jobs job on job.id = wanted.id
  where job.locked_at is null and job.attempts::integer = wanted.attempts - 1
  for update of job skip locked
),
taken as (
  update "graphile_worker"._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($4::timestamptz, now())
  where job.id = any (array(select id from free))
  returning job.id
)
select
  job.id,
  case
    when job.locked_by = $1 or taken.id is not null then true
    when job.locked_at is null and job.attempts::integer = wanted.attempts - 1
      and job.id <> all (array(select id from free)) then false
  end as is_ours
from wanted
join "graphile_worker"._private_jobs job on job.id = wanted.id
left join taken on taken.id = job.id

-- statement limits/add_missing_limits
insert into "graphile_worker"._private_py_limits
  (name, code_concurrency, code_starts, code_period, code_burst, tasks)
select given.name, given.concurrency, given.starts, given.period, given.burst, given.tasks::text[]
from unnest(
  $1::text[], $2::integer[], $3::double precision[], $4::double precision[], $5::double precision[], $6::text[]
) as given (name, concurrency, starts, period, burst, tasks)
on conflict (name) do nothing

-- statement limits/get_limited_jobs
select * from "graphile_worker"._private_py_get_limited_jobs(
  $1::text, $2::text, $3::integer, $4::text[], $5::timestamptz, $6::smallint[], $7::smallint[], $8::double precision[],
  $9::text[], $10::boolean
)

-- statement limits/list_limits
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
    select count(*)::integer from "graphile_worker"._private_py_limit_holds hold
    join "graphile_worker"._private_jobs job on job.id = hold.job_id and job.locked_by = hold.pool_id
    where hold.limit_name = limits.name
  ) end as running,
  case when limits.rate is not null then floor(
    least(
      limits.burst,
      limits.tokens
      + limits.rate * greatest(0::double precision, date_part('epoch', clock_timestamp() - limits.refilled_at))
    )
  )::integer end as may_start
from "graphile_worker"._private_py_limits limits
order by limits.name

-- statement limits/register_limits
insert into "graphile_worker"._private_py_limits as limits
  (name, code_concurrency, code_starts, code_period, code_burst, tasks)
select given.name, given.concurrency, given.starts, given.period, given.burst, given.tasks::text[]
from unnest(
  $1::text[], $2::integer[], $3::double precision[], $4::double precision[], $5::double precision[], $6::text[]
) as given (name, concurrency, starts, period, burst, tasks)
order by given.name -- the same order in every worker, so that two of them cannot deadlock
on conflict (name) do update
set
  code_concurrency = excluded.code_concurrency,
  code_starts = excluded.code_starts,
  code_period = excluded.code_period,
  code_burst = excluded.code_burst,
  tasks = array(select pg_catalog.unnest(limits.tasks) union select pg_catalog.unnest(excluded.tasks) order by 1),
  started_at = now()

-- statement limits/reset_limit
with changed as (
  update "graphile_worker"._private_py_limits
  set
    set_concurrency = null, set_starts = null, set_period = null, set_burst = null, set_at = null,
    is_awaited = false
  where name = $1::text
  returning name
),
notified as materialized (select pg_notify('worker:py', '{"limits":1}') from changed)
select changed.name from changed cross join notified

-- statement limits/set_limit
with changed as (
  update "graphile_worker"._private_py_limits
  set
    set_concurrency = coalesce($2::integer, set_concurrency),
    set_starts = coalesce($3::double precision, set_starts),
    set_period = coalesce($4::double precision, set_period),
    set_burst = coalesce($5::double precision, set_burst),
    set_at = now(),
    is_awaited = false
  where name = $1::text
  returning name
),
notified as materialized (select pg_notify('worker:py', '{"limits":1}') from changed)
select changed.name from changed cross join notified

-- statement recovery/add_worker_tasks
update "graphile_worker"._private_py_workers worker
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

-- statement recovery/claim_duties
with duty as (
  select each.name, each.seconds
  from unnest($2::text[], $3::double precision[]) as each (name, seconds)
  where pg_catalog.set_config('synchronous_commit', 'off', true) is not null
),
claimed as (
  insert into "graphile_worker"._private_py_duties as done (name, pool_id, done_at)
  select duty.name, $1::text, now()
  from duty
  order by duty.name
  on conflict (name) do update set pool_id = excluded.pool_id, done_at = excluded.done_at
  where done.done_at > excluded.done_at + interval '1 minute' -- the server's clock was set back
  or date_part('epoch', excluded.done_at) - date_part('epoch', done.done_at) >= (
    select case
      when done.pool_id = excluded.pool_id then duty.seconds * 0.9::double precision
      else duty.seconds + $4::double precision
    end
    from duty
    where duty.name = done.name
  )
  returning done.name
)
select
  duty.name,
  claimed.name is not null as is_ours,
  case
    when claimed.name is not null then duty.seconds
    else coalesce(
      date_part('epoch', done.done_at) - date_part('epoch', now()) + duty.seconds
      + case when done.pool_id = $1::text then 0::double precision else $4::double precision end,
      duty.seconds + $4::double precision
    )
  end as wait
from duty
left join claimed on claimed.name = duty.name
left join "graphile_worker"._private_py_duties as done on done.name = duty.name

-- statement recovery/delete_dead_workers
delete from "graphile_worker"._private_py_workers
where id = any ($1::text[]) and lost_at <= now() - grace
returning id

-- statement recovery/deregister_rust_workers
delete from "graphile_worker"._private_workers where id = any ($1::text[])

-- statement recovery/deregister_worker
delete from "graphile_worker"._private_py_workers where id = $1

-- statement recovery/describe_worker
with
described as (
  update "graphile_worker"._private_py_workers
  set app_version = $2::text, lanes = $3::text::jsonb
  where id = $1::text
),
latest as materialized (
  select id, version from "graphile_worker"._private_py_deploys order by id desc limit 1
),
known as materialized (
  select deploy.id
  from "graphile_worker"._private_py_deploys deploy
  where deploy.version = $2::text
    and (deploy.last_started_at > now() - interval '15 minutes' or deploy.id = (select latest.id from latest))
  order by deploy.id desc
  limit 1
),
continued as (
  update "graphile_worker"._private_py_deploys deploy
  set last_started_at = now(), starts = deploy.starts + 1
  from known
  where deploy.id = known.id
),
added as (
  insert into "graphile_worker"._private_py_deploys (version)
  select $2::text
  where $2::text is not null and not exists (select from known)
),
purged as (
  delete from "graphile_worker"._private_py_deploys deploy
  where deploy.id <= (
    select kept.id from "graphile_worker"._private_py_deploys kept order by kept.id desc offset 500 limit 1
  )
),
unasked as (
  delete from "graphile_worker"._private_py_requests request
  where not exists (
    select from "graphile_worker"._private_py_workers worker where worker.id = request.pool_id
  )
)
select count(*) from latest

-- statement recovery/end_held_batches
with holding as materialized (
  select distinct pid
  from pg_locks
  where pid <> pg_backend_pid()
    and granted and locktype = 'advisory' and objsubid = 1 and mode = 'ShareLock'
    and database = (select oid from pg_database where datname = current_database())
    and classid = ((hashtextextended($1::text || '/' || $2::text || '/hold', 0::bigint) >> 32) & 4294967295)::oid
    and objid = (hashtextextended($1 || '/' || $2 || '/hold', 0::bigint) & 4294967295)::oid
)
select
  pg_catalog.count(pg_terminate_backend(pid)),
  case when pg_catalog.count(pid) > 0 then pg_sleep(0.02::double precision) end
from holding

-- statement recovery/end_lost_sessions
with ours as materialized (
  select pid
  from pg_stat_activity
  where pid = any ($1::integer[])
    and pid <> pg_backend_pid()
    and datname = current_database() and usename = current_user
    and application_name = current_setting('application_name')
)
select pid, pg_terminate_backend(pid) from ours

-- statement recovery/end_old_worker_session
select pg_catalog.count(pg_terminate_backend(held.pid))
from pg_locks held
join "graphile_worker"._private_py_workers worker on worker.backend_pid = held.pid
where worker.id = $2
  and held.pid <> pg_backend_pid()
  and held.granted and held.locktype = 'advisory' and held.objsubid = 1
  and held.database = (select oid from pg_database where datname = current_database())
  and held.classid = ((hashtextextended($1 || '/' || $2, 0::bigint) >> 32) & 4294967295)::oid
  and held.objid = (hashtextextended($1 || '/' || $2, 0::bigint) & 4294967295)::oid

-- statement recovery/follow_failures
insert into "graphile_worker"._private_py_failure_handlers as handler (task)
select task from pg_catalog.unnest($1::text[]) as handled (task)
order by task
on conflict (task) do update
set
  since = case when handler.checked_at < now() - interval '7 days' then now() else handler.since end,
  checked_at = now()

-- statement recovery/gone_jobs
select wanted.id
from pg_catalog.unnest($1::bigint[]) as wanted (id)
where not exists (select from "graphile_worker"._private_jobs job where job.id = wanted.id)

-- statement recovery/has_rust_workers
select exists (
  select from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where namespace.nspname = $1::text and class.relname = '_private_workers'
)

-- statement recovery/heartbeat
update "graphile_worker"._private_py_workers worker
set last_seen_at = now(), lost_at = null, liveness = $2, backend_pid = $3
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
where worker.id = $1
returning pg_backend_pid() as pid, date_part('epoch', clock_timestamp()) as server_time

-- statement recovery/heartbeat_with_jobs
update "graphile_worker"._private_py_workers worker
set
  last_seen_at = now(),
  lost_at = null,
  liveness = $2,
  backend_pid = $3,
  jobs_held = $4,
  running = coalesce(
    (
      select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_array(job.id, date_part('epoch', now()) - job.age) order by job.age desc, job.id
      )
      from unnest($5::bigint[], $6::double precision[]) as job (id, age)
    ),
    '[]'
  )
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
where worker.id = $1
returning pg_backend_pid() as pid, date_part('epoch', clock_timestamp()) as server_time

-- statement recovery/list_workers
with
scan as materialized (
  select
    $2::boolean
    or pg_catalog.pg_relation_size(class.oid) <= $3::bigint * current_setting('block_size')::bigint as is_scanned
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where namespace.nspname = $1::text and class.relname = '_private_jobs'
),
held as (
  select locked_by as id, pg_catalog.array_agg(id order by id) as job_ids, min(locked_at) as locked_since
  from "graphile_worker"._private_jobs
  where (select is_scanned from scan) and locked_by is not null
  group by locked_by
),
lock as (
  select (classid::bigint << 32) | objid::bigint as key
  from pg_catalog.pg_locks
  where locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_catalog.pg_database where datname = current_database())
),
worker as (
  select
    *,
    case
      when liveness = 'lock' and backend_pid is not null
      then hashtextextended($1::text || '/' || id, 0::bigint) in (select key from lock)
      else last_seen_at between now() - heartbeat_interval - heartbeat_interval
        and now() + heartbeat_interval + heartbeat_interval
    end as is_alive
  from "graphile_worker"._private_py_workers
)
select
  scan.is_scanned,
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
    when worker.last_seen_at < now() - worker.heartbeat_interval - worker.heartbeat_interval
    then date_part('epoch', now()) - date_part('epoch', worker.last_seen_at)
  end as silent_for,
  date_part('epoch', now()) as now,
  (pg_catalog.to_jsonb(worker) ->> 'jobs_held'::text)::integer as jobs_held,
  pg_catalog.to_jsonb(worker) ->> 'running'::text as running,
  pg_catalog.to_jsonb(worker) ->> 'blocked'::text as blocked,
  pg_catalog.to_jsonb(worker) ->> 'app_version'::text as app_version,
  pg_catalog.to_jsonb(worker) ->> 'lanes'::text as lanes,
  pg_catalog.to_jsonb(worker) ->> 'state'::text as state,
  pg_catalog.to_jsonb(worker) ->> 'forbidden_flags'::text as forbidden_flags,
  coalesce(held.job_ids, '{}') as job_ids,
  array(
    select job.id
    from pg_catalog.jsonb_array_elements(
      case
        when pg_catalog.jsonb_typeof(pg_catalog.to_jsonb(worker) -> 'running'::text) = 'array'::text
        then pg_catalog.to_jsonb(worker) -> 'running'::text else '[]'::jsonb
      end
    ) as reported (job)
    join "graphile_worker"._private_jobs as job on job.id = (reported.job ->> 0)::bigint
    where scan.is_scanned and worker.is_alive and job.is_available and job.run_at <= now()
    order by job.id
  ) as held_ids,
  date_part('epoch', held.locked_since) as locked_since
from scan left join (worker full join held using (id)) on true
order by worker.started_at nulls last, id

-- statement recovery/lock_worker
select pg_try_advisory_lock(hashtextextended($1 || '/' || $2, 0::bigint))

-- statement recovery/look_for_deaths
with
lock as (
  select (classid::bigint << 32) | objid::bigint as key
  from pg_catalog.pg_locks
  where locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_catalog.pg_database where datname = current_database())
),
worker as (
  select
    *,
    case
      when liveness = 'lock' and backend_pid is not null
      then hashtextextended($1::text || '/' || id, 0::bigint) in (select key from lock)
      else last_seen_at between now() - heartbeat_interval - heartbeat_interval
        and now() + heartbeat_interval + heartbeat_interval
    end as is_alive
  from "graphile_worker"._private_py_workers
)
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
    when died_at between now() - interval '1 second' * $3 and now() + interval '1 second' * $3
    then date_part('epoch', died_at) + $3
  end as calm_at
  from "graphile_worker"._private_py_last_death
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

-- statement recovery/mark_unreachable_workers
with
checked as materialized (
  select
    worker.id,
    worker.lost_at,
    worker.grace,
    case
      when worker.liveness = 'lock' and worker.backend_pid is not null
      then pg_try_advisory_xact_lock(hashtextextended($1::text || '/' || worker.id, 0::bigint))
      else worker.last_seen_at not between now() - worker.heartbeat_interval - worker.heartbeat_interval
        and now() + worker.heartbeat_interval + worker.heartbeat_interval
    end as is_unreachable
  from "graphile_worker"._private_py_workers worker
  where worker.id is distinct from $2::text
),
marked as (
  update "graphile_worker"._private_py_workers worker
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
    - date_part('epoch', now()) as remaining
from checked left join marked on marked.id = checked.id
where checked.is_unreachable
order by checked.id

-- statement recovery/note_rerun
insert into "graphile_worker"._private_py_recoveries (job_id, recoveries, started_by)
values ($2, 0, $1)
on conflict (job_id) do update set started_by = excluded.started_by

-- statement recovery/orphaned_jobs
select
    job.id,
    job.payload::text as payload,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    job.last_error,
    date_part('epoch', job.created_at) as created_at,
    date_part('epoch', job.updated_at) as updated_at,
    job.key,
    date_part('epoch', job.locked_at) as locked_at,
    job.revision,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id,
    job.locked_by,
  task.identifier,
  coalesce(recovery.recoveries, 0) as recoveries,
  recovery.job_id is null or recovery.started_by is not distinct from job.locked_by as counts
from "graphile_worker"._private_jobs job
join "graphile_worker"._private_tasks task on task.id = job.task_id
left join "graphile_worker"._private_py_recoveries recovery on recovery.job_id = job.id
where job.locked_by = any ($1::text[])
order by job.id

-- statement recovery/purge_recoveries
with gone as (
  delete from "graphile_worker"._private_py_recoveries recovery
  where not exists (select from "graphile_worker"._private_jobs job where job.id = recovery.job_id)
  returning job_id
)
select count(*) from gone

-- statement recovery/purge_told_failures
with old as (
  select told.job_id
  from "graphile_worker"._private_py_told_failures told
  where not exists (
    select from "graphile_worker"._private_jobs job where job.id = told.job_id and not job.is_available
  )
  limit $1::integer
  for update skip locked
)
delete from "graphile_worker"._private_py_told_failures told
using old
where told.job_id = old.job_id

-- statement recovery/reclaim_jobs
with
lost as (
  update "graphile_worker"._private_jobs job
  set
    attempts = case -- a job that was replaced by its key does not come back (see recover_jobs)
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
      else greatest(0, job.attempts - 1)
    end,
    locked_by = null,
    locked_at = null
  where job.locked_by = $1::text and job.id <> all ($2::bigint[])
  returning job.id
),
freed_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1 and not exists (
    select from "graphile_worker"._private_jobs job
    where job.locked_by = $1 and job.id = any ($2::bigint[]) and job.job_queue_id = queue.id
  )
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from lost having count(*) > 0
)
select lost.id from lost left join notified on true

-- statement recovery/recover_jobs
with
decided as materialized (
  select * from unnest($2::bigint[], $3::text[], $4::text[], $5::boolean[]) as decided (id, verdict, message, counts)
),
recovered as (
  update "graphile_worker"._private_jobs job
  set
    attempts = case
      when decided.verdict = 'fail' then job.attempts
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
      when decided.verdict = 'return' then greatest(0, job.attempts - 1)
      else greatest(job.attempts, job.max_attempts)
    end,
    run_at = case decided.verdict
      when 'return' then greatest(job.run_at, now() + $6::interval)
      when 'fail'
        then greatest(job.run_at, now()) + interval '1 second' *
  exp(least(attempts, 10)::double precision)
      else job.run_at
    end,
    last_error = case
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at
      then 'Not run again: its worker died after its key had been used again or removed'
      else decided.message
    end,
    locked_by = null,
    locked_at = null,
    updated_at = now()
  from decided
  where job.id = decided.id and job.locked_by = any ($1::text[])
  returning job.id, decided.verdict, decided.counts, job.is_available, job.last_error
),
counted as (
  insert into "graphile_worker"._private_py_recoveries as recovery (job_id, recoveries)
  select recovered.id, 1 from recovered where recovered.verdict <> 'give_up'
  on conflict (job_id) do update
  set
    recoveries = recovery.recoveries
      + (select recovered.counts::integer from recovered where recovered.id = recovery.job_id),
    last_at = now(),
    started_by = null
),
reset_counter as (
  delete from "graphile_worker"._private_py_recoveries recovery
  using recovered
  where recovery.job_id = recovered.id and recovered.verdict = 'give_up'
),
freed_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = any ($1::text[]) and queue.id <> all ($7::integer[])
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from recovered where verdict = 'return' and is_available having count(*) > 0
)
select recovered.id, recovered.is_available, recovered.last_error from recovered left join notified on true

-- statement recovery/register_worker
insert into "graphile_worker"._private_py_workers
  (id, host, pid, version, tasks, concurrency, started_at, liveness, backend_pid, heartbeat_interval, grace)
select $1, $2, $3, $4, $5::text[], $6, coalesce($7, now()), $8, $9, $10, $11
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
on conflict (id) do update
set last_seen_at = now(), lost_at = null, liveness = excluded.liveness, backend_pid = excluded.backend_pid
returning started_at

-- statement recovery/renew_locks
with
renewed as (
  update "graphile_worker"._private_jobs
  set
    locked_at = coalesce($3::timestamptz, now()),
    updated_at = case
      when updated_at > locked_at then coalesce($3::timestamptz, now()) + interval '1 microsecond'
      else updated_at
    end
  where id = any ($2::bigint[]) and locked_by = $1
    and locked_at < coalesce($3::timestamptz, now()) - interval '1 hour'
  returning job_queue_id
),
renewed_queue as (
  update "graphile_worker"._private_job_queues
  set locked_at = coalesce($3::timestamptz, now())
  where locked_by = $1 and id = any (array(select job_queue_id from renewed where job_queue_id is not null))
)
select count(*) from renewed

-- statement recovery/report_blockage
update "graphile_worker"._private_py_workers
set blocked = case
  when $4::double precision is not null
  then pg_catalog.jsonb_build_object(
    'task', $2::text, 'job', $3::bigint, 'since', date_part('epoch', now()) - $4::double precision
  )
end
where id = $1::text

-- statement recovery/report_state
update "graphile_worker"._private_py_workers
set state = pg_catalog.jsonb_build_object(
  'is_listening', $2::boolean, 'clock', $3::double precision, 'executors', $4::text::jsonb
)
where id = $1::text

-- statement recovery/reset_locked
with
freed_job as (
  update "graphile_worker"._private_jobs
  set locked_at = null, locked_by = null, run_at = greatest(run_at, coalesce($1::timestamptz, now()))
  where locked_at < coalesce($1::timestamptz, now()) - interval '4 hours'
  returning id
),
freed_queue as (
  update "graphile_worker"._private_job_queues
  set locked_at = null, locked_by = null
  where locked_at < coalesce($1::timestamptz, now()) - interval '4 hours'
  returning id
)
select (select count(*) from freed_job) as jobs, (select count(*) from freed_queue) as queues

-- statement recovery/rust_heartbeat
insert into "graphile_worker"._private_workers (id, last_heartbeat_at, metadata)
values ($1, now(), pg_catalog.jsonb_build_object('pid', $2::integer))
on conflict (id) do update set last_heartbeat_at = excluded.last_heartbeat_at

-- statement recovery/still_locked
select id from "graphile_worker"._private_jobs where id = any ($2::bigint[]) and locked_by = $1

-- statement recovery/sweep_lock
select pg_try_advisory_xact_lock(1196905043, 1398228304)
from (
  select
    pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true),
    case when pg_catalog.current_setting('server_version_num')::integer >= 170000
      then pg_catalog.set_config('transaction_timeout', $1::text, true)
    end
) setting

-- statement recovery/tune_heartbeat_session
select
  pg_catalog.set_config(
    'search_path',
    case
      when pg_catalog.current_setting('search_path') operator(pg_catalog.=) '' then 'pg_catalog'
      else pg_catalog.concat('pg_catalog, ', pg_catalog.current_setting('search_path'))
    end,
    false
  ),
  pg_catalog.set_config('tcp_keepalives_idle', '5', false),
  pg_catalog.set_config('tcp_keepalives_interval', '3', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '1min', false),
  pg_catalog.set_config('lock_timeout', '0', false),
  case -- not before PostgreSQL 14
    when current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end

-- statement recovery/unlock_worker
select pg_advisory_unlock(hashtextextended($1 || '/' || $2, 0::bigint))

-- statement recovery/untold_failures
with failed as materialized (
  select
    job.id, job.task_id, handler.since,
    greatest(
        date_part('epoch', updated_at),
        case
            when date_part('epoch', run_at) -
  exp(least(attempts, 10)::double precision)
                <= date_part('epoch', now())
            then date_part('epoch', run_at) -
  exp(least(attempts, 10)::double precision)
        end
    )
    as failed_at
  from "graphile_worker"._private_jobs job
  join "graphile_worker"._private_tasks task on task.id = job.task_id
  join "graphile_worker"._private_py_failure_handlers handler on handler.task = task.identifier
  where not job.is_available and job.locked_at is null
    and task.identifier = any ($1::text[])
    and job.last_error is distinct from $2::text
    and not exists (
      select from "graphile_worker"._private_py_cancels cancelled where cancelled.job_id = job.id
    )
),
untold as (
  select failed.id, failed.failed_at
  from failed
  where failed.failed_at > date_part('epoch', failed.since)
    and not exists (
      select from "graphile_worker"._private_py_told_failures told
      where told.job_id = failed.id and told.failed_at >= failed.failed_at - 0.001::double precision
    )
  order by failed.id
  limit $3::integer
),
marked as (
  insert into "graphile_worker"._private_py_told_failures as told (job_id, failed_at)
  select untold.id, untold.failed_at from untold
  on conflict (job_id) do update set failed_at = excluded.failed_at
  where told.failed_at < excluded.failed_at - 0.001::double precision
  returning told.job_id
)
select
    job.id,
    job.payload::text as payload,
    job.priority,
    date_part('epoch', job.run_at) as run_at,
    job.attempts,
    job.max_attempts,
    job.last_error,
    date_part('epoch', job.created_at) as created_at,
    date_part('epoch', job.updated_at) as updated_at,
    job.key,
    date_part('epoch', job.locked_at) as locked_at,
    job.revision,
    job.flags::text as flags,
    job.task_id,
    job.job_queue_id,
    job.locked_by,
  task.identifier
from marked
join "graphile_worker"._private_jobs job on job.id = marked.job_id
join "graphile_worker"._private_tasks task on task.id = job.task_id
order by job.id

-- statement requests/answer
update "graphile_worker"._private_py_requests set answer = $2::text::jsonb where id = $1::bigint

-- statement requests/ask_worker
with
forgotten as (
  delete from "graphile_worker"._private_py_requests
  where kind = 'stack' and asked_at < now() - interval '5 minutes'
),
earlier as materialized (
  select id
  from "graphile_worker"._private_py_requests
  where pool_id = $1::text and kind = $2::text and kind <> 'stack'
  order by id
  limit 1
),
asked as (
  insert into "graphile_worker"._private_py_requests (pool_id, kind, job_id, reason)
  select worker.id, $2::text, $3::bigint, $4::text
  from "graphile_worker"._private_py_workers worker
  where worker.id = $1::text and not exists (select from earlier)
  returning id
),
notified as materialized (
  select pg_notify('worker:py', pg_catalog.json_build_object('requests', 1, 'pool', $1::text)::text) from asked
)
select coalesce((select max(asked.id) from asked), (select max(earlier.id) from earlier)) as id
from (select count(*) from notified) always
where exists (select from "graphile_worker"._private_py_workers worker where worker.id = $1::text)

-- statement requests/deploys
select
  version, date_part('epoch', started_at) as started_at, date_part('epoch', last_started_at) as last_started_at, starts
from "graphile_worker"._private_py_deploys
where started_at >= $1::timestamptz
order by id desc
limit $2::integer

-- statement requests/list_requests
select pool_id, kind, reason, date_part('epoch', asked_at) as asked_at
from "graphile_worker"._private_py_requests
where kind <> 'stack'
order by id

-- statement requests/read_answer
select answer::text as answer, date_part('epoch', now()) as now
from "graphile_worker"._private_py_requests
where id = $1::bigint

-- statement requests/resume_worker
with
resumed as (
  delete from "graphile_worker"._private_py_requests where pool_id = $1::text and kind = 'quiet'
  returning id
),
notified as materialized (
  select pg_notify('worker:py', pg_catalog.json_build_object('requests', 1, 'pool', $1::text)::text) from resumed
)
select exists (select from resumed) as was_quiet
from (select count(*) from notified) always

-- statement requests/withdraw
delete from "graphile_worker"._private_py_requests where id = $1::bigint

-- statement session/backend_pid
select pg_backend_pid()

-- statement session/bound_lock_waits
with earlier as materialized (
  select setting, setting::interval as seconds
  from (select pg_catalog.current_setting('lock_timeout'::text) as setting) as current
)
select earlier.setting
from earlier
where pg_catalog.set_config(
  'lock_timeout'::text,
  case
    when earlier.seconds > interval '0' and earlier.seconds < $1::text::interval then earlier.setting else $1::text
  end,
  true
) is not null

-- statement session/bounds
select
  pg_catalog.set_config('statement_timeout', $1::text, true),
  pg_catalog.set_config('lock_timeout', $2::text, true),
  pg_catalog.set_config('jit', 'off', true),
  pg_catalog.set_config('max_parallel_workers_per_gather', '0', true)

-- statement session/ping
select pg_notify($1::text, '')

-- statement session/tune_hold_session
select
  pg_catalog.set_config('idle_in_transaction_session_timeout', '10min', false),
  case -- not before PostgreSQL 17
    when current_setting('transaction_timeout', true) is not null
      then pg_catalog.set_config('transaction_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '5', false),
  pg_catalog.set_config('tcp_keepalives_interval', '3', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false),
  pg_try_advisory_lock_shared(hashtextextended($1::text || '/' || $2::text || '/hold', 0::bigint))

-- statement session/tune_listener
select
  pg_catalog.set_config(
    'search_path',
    case
      when pg_catalog.current_setting('search_path') operator(pg_catalog.=) '' then 'pg_catalog'
      else pg_catalog.concat('pg_catalog, ', pg_catalog.current_setting('search_path'))
    end,
    false
  ),
  case -- not before PostgreSQL 14
    when current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '30', false),
  pg_catalog.set_config('tcp_keepalives_interval', '10', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false)

-- statement session/tune_session
select
  pg_catalog.set_config(
    'search_path',
    case
      when pg_catalog.current_setting('search_path') operator(pg_catalog.=) '' then 'pg_catalog'
      else pg_catalog.concat('pg_catalog, ', pg_catalog.current_setting('search_path'))
    end,
    false
  ),
  pg_catalog.set_config('enable_seqscan', 'off', false),
  pg_catalog.set_config('enable_bitmapscan', 'off', false),
  pg_catalog.set_config('enable_hashjoin', 'off', false),
  pg_catalog.set_config('enable_mergejoin', 'off', false),
  pg_catalog.set_config('enable_sort', 'off', false), -- if an index has the order; the others still sort
  case -- not before PostgreSQL 13
    when current_setting('enable_incremental_sort', true) is not null
      then pg_catalog.set_config('enable_incremental_sort', 'off', false)
  end,
  pg_catalog.set_config('jit', 'off', false),
  pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
  pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
  pg_catalog.set_config('statement_timeout', '11min', false), -- longer than a worker ever waits
  pg_catalog.set_config('lock_timeout', '0', false),
  pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
  case -- not before PostgreSQL 14
    when current_setting('idle_session_timeout', true) is not null
      then pg_catalog.set_config('idle_session_timeout', '0', false)
  end,
  pg_catalog.set_config('tcp_keepalives_idle', '30', false),
  pg_catalog.set_config('tcp_keepalives_interval', '10', false),
  pg_catalog.set_config('tcp_keepalives_count', '3', false)

-- statement write/complete_adjacent_jobs
with completed as (
  delete from "graphile_worker"._private_jobs
  where id between $3::bigint and $4::bigint
    and (id in (select pg_catalog.unnest($2::bigint[]))) is true
    and (locked_by = $1::text or key is null)
  returning id
)
select array(select pg_catalog.unnest($2::bigint[]) except select id from completed) as missing
where (select count(*) from completed) < pg_catalog.cardinality($2::bigint[])

-- statement write/complete_and_take_next
with
completed as (
  delete from "graphile_worker"._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
)
,
ended as (select job_queue_id from completed),
task (ids) as materialized (select $3::text::integer[]),
held_queue as materialized (
  select id from "graphile_worker"._private_job_queues
  where locked_by = $1
    and id = any (array(select job_queue_id from ended where job_queue_id is not null))
),
next as materialized (
  select head.place
  from held_queue cross join lateral (
    select job.ctid as place
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[held_queue.id])
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
    for update skip locked
  ) head
),
taken as (
  update "graphile_worker"._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
  where job.ctid = any (array(select place from next))
  returning job.*
),
released_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1
    and queue.id = any (array(select id from held_queue except select job_queue_id from taken))
),
renewed_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_at = coalesce($5::timestamptz, now())
  where queue.locked_at < coalesce($5::timestamptz, now()) - interval '1 minute'
    and queue.id = any (array(select job_queue_id from taken))
)
select
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
  , (
    select case when count(*) < pg_catalog.cardinality($2::bigint[]) then coalesce(pg_catalog.array_agg(id), '{}') end
    from completed
  ) as completed
from (select) always left join taken on true
order by priority, run_at

-- statement write/complete_job
delete from "graphile_worker"._private_jobs
where id = $2::bigint and (locked_by = $1::text or key is null)

-- statement write/complete_jobs
with
completed as (
  delete from "graphile_worker"._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
)
select array(select pg_catalog.unnest($2::bigint[]) except select id from completed) as missing
where (select count(*) from completed) < pg_catalog.cardinality($2::bigint[])

-- statement write/complete_many_jobs
delete from "graphile_worker"._private_jobs
where id between $3::bigint and $4::bigint
  and (id in (select pg_catalog.unnest($2::bigint[]))) is true
  and (locked_by = $1::text or key is null)

-- statement write/complete_queued_jobs
with
completed as (
  delete from "graphile_worker"._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
)
,
released_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1
    and queue.id = any (array(select job_queue_id from completed where job_queue_id is not null))
)
select array(select pg_catalog.unnest($2::bigint[]) except select id from completed) as missing
where (select count(*) from completed) < pg_catalog.cardinality($2::bigint[])

-- statement write/mark_told_failures
insert into "graphile_worker"._private_py_told_failures (job_id, failed_at)
select job_id, date_part('epoch', now()) from pg_catalog.unnest($1::bigint[]) as told (job_id)
on conflict (job_id) do update set failed_at = excluded.failed_at

-- statement write/release_queue
update "graphile_worker"._private_job_queues
set locked_by = null, locked_at = null
where id = $2::integer and locked_by = $1::text

-- statement write/return_jobs
with returned as (
  update "graphile_worker"._private_jobs job
  set
    attempts = case -- a job that was replaced by its key does not come back (see recover_jobs)
      when job.key is null and job.attempts >= job.max_attempts
        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
      else greatest(0, job.attempts - 1)
    end,
    last_error = coalesce($3::text, job.last_error),
    run_at = case
      when $5::double precision > 0::double precision
        then greatest(job.run_at, now() + $5 * interval '1 second')
      else job.run_at
    end,
    locked_by = null,
    locked_at = null
  where job.id = any ($2::bigint[]) and job.locked_by = $1::text
  returning job.id, job.job_queue_id, job.is_available
),
released_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.id = any ($4::integer[]) and queue.locked_by = $1
    and queue.id in (select job_queue_id from returned)
),
notified as materialized (
  select pg_notify('jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*))::text)
  from returned where is_available having count(*) > 0
)
select case when returned.is_available then returned.id else - returned.id end from returned left join notified on true

-- statement write/write_and_keep
with
completed as (
  delete from "graphile_worker"._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
)
,
kept as (
  delete from "graphile_worker"._private_jobs job
  using unnest($18::bigint[], $19::double precision[], $20::text[], $26::text[]) as ran (job_id, seconds, result, payload)
  where job.id = any (array[ran.job_id]) and (job.locked_by = $1::text or job.key is null)
  returning
    job.id, job.task_id, job.job_queue_id, job.key, job.priority, job.attempts, job.max_attempts, job.created_at,
    job.run_at, job.flags, case when $22::boolean then coalesce(ran.payload::json, job.payload) end as payload,
    ran.seconds, ran.result
),
failed as (
  update "graphile_worker"._private_jobs job
  set
    last_error = case
      when failure.verdict = 'snooze' and not
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
        then job.last_error
      else failure.message
    end,
    payload = coalesce(failure.new_payload::json, job.payload),
    max_attempts =
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
    ,
    attempts =
  case
    when failure.verdict = 'give_up' then greatest(job.attempts,
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
    )
    when failure.verdict = 'snooze' and not
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
      then greatest(0, job.attempts - 1)
    else job.attempts
  end
    ,
    run_at = greatest(now(), job.run_at) + interval '1 second' * case
      when failure.delay is not null and
  case
    when failure.verdict = 'give_up' then greatest(job.attempts,
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
    )
    when failure.verdict = 'snooze' and not
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
      then greatest(0, job.attempts - 1)
    else job.attempts
  end
        <
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
        then failure.delay
      else exp(least(
  case
    when failure.verdict = 'give_up' then greatest(job.attempts,
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
    )
    when failure.verdict = 'snooze' and not
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
      then greatest(0, job.attempts - 1)
    else job.attempts
  end
        , 10)::double precision)
    end,
    locked_by = null,
    locked_at = null
  from unnest(
    $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::double precision[], $11::double precision[], $12::boolean[],
    $13::double precision[], $14::text[], $15::text[], $16::text[], $17::double precision[], $27::text[], $28::text[],
    $29::double precision[], $30::bigint[]
  ) as failure (
    job_id, message, new_payload, own_max_attempts, seconds, keep_seconds, keep_payload, keep_error_seconds, error_type, traceback,
    fingerprint, due_at, redacted_payload, verdict, delay, attempt
  )
  where job.id = any (array[failure.job_id]) and job.locked_by = $1::text
  returning job.*, failure.*
),
kept_end as (
  insert into "graphile_worker"._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, started_at,
    finished_at, duration, pool_id, flags, payload, result, expires_on
  )
  select
    id, task_id, $31::text,
  case
    when job.job_queue_id is not null
      then (
        select pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') from "graphile_worker"._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end
    , key, priority, attempts, max_attempts, created_at, run_at, now() - interval '1 second' * seconds,
    now(), seconds, $1, flags, payload, result::json,
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
  from (select kept.*, $21::double precision as keep_seconds, now() as kept_at from kept) job
),
failed_end as (
  insert into "graphile_worker"._private_py_history (
    job_id, task_id, state, queue_name, job_key, priority, attempts, max_attempts, created_at, run_at, started_at,
    finished_at, duration, pool_id, flags, payload, error, expires_on
  )
  select
    id, task_id, 'failed',
  case
    when job.job_queue_id is not null
      then (
        select pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') from "graphile_worker"._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end
    , key, priority, attempt::smallint, max_attempts, created_at, to_timestamp(due_at), now() - interval '1 second' * seconds,
    now(), seconds, $1, flags, case when keep_payload then coalesce(redacted_payload::json, payload) end, message,
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
  from (select failed.*, now() as kept_at from failed where not is_available and keep_seconds is not null) job
),
error as (
  insert into "graphile_worker"._private_py_errors (
    job_id, attempt, task_id, failed_at, duration, is_final, error_type, message, traceback, fingerprint, pool_id,
    version, expires_on
  )
  select
    id, attempt::smallint, task_id, now(), seconds, not is_available, error_type, message, traceback, fingerprint, $1, $24::text,
  case
    when keep_seconds <= 1468800::double precision -- 17 days
      then (kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date
    when keep_seconds <= 8640000::double precision -- 100 days
      then date_trunc('week', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds)::date + 6
    else (
      date_trunc('month', kept_at at time zone 'UTC' + interval '1 second' * keep_seconds) + interval '1 month'
    )::date - 1
  end
  from (
    select
      id, attempt, task_id, seconds, is_available, error_type, message, traceback, fingerprint,
      keep_error_seconds as keep_seconds, now() as kept_at
    from failed where keep_error_seconds is not null
  ) job
),
announced as materialized (
  select pg_notify(
    'worker:ended',
    pg_catalog.json_build_object(
      'schema', $25::text, 'ids', case when count(*) <= 300 then pg_catalog.json_agg(id) end
    )::text
  )
  from (
    select id from kept where id = any ($23::bigint[])
    union all
    select id from failed where not is_available and id = any ($23::bigint[])
  ) job
  where pg_catalog.cardinality($23::bigint[]) > 0
  having count(*) > 0
),
ended as (
  select job_queue_id from completed
  union all
  select job_queue_id from kept
  union all
  select job_queue_id from failed
),
task (ids) as materialized (select $3::text::integer[]),
held_queue as materialized (
  select id from "graphile_worker"._private_job_queues
  where locked_by = $1
    and id = any (array(select job_queue_id from ended where job_queue_id is not null))
),
next as materialized (
  select head.place
  from held_queue cross join lateral (
    select job.ctid as place
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[held_queue.id])
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
    for update skip locked
  ) head
),
taken as (
  update "graphile_worker"._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
  where job.ctid = any (array(select place from next))
  returning job.*
),
released_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1
    and queue.id = any (array(select id from held_queue except select job_queue_id from taken))
),
renewed_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_at = coalesce($5::timestamptz, now())
  where queue.locked_at < coalesce($5::timestamptz, now()) - interval '1 minute'
    and queue.id = any (array(select job_queue_id from taken))
)
select
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
  , (
    select case
      when count(*) < pg_catalog.cardinality($2::bigint[]) + pg_catalog.cardinality($18::bigint[]) then coalesce(pg_catalog.array_agg(id), '{}')
    end
    from (select id from completed union all select id from kept) deleted
  ) as completed
  , (select pg_catalog.array_agg(case when is_available then id else - id end) from failed) as failed
from (select) always left join taken on true left join announced on true
order by priority, run_at

-- statement write/write_outcomes
with
completed as (
  delete from "graphile_worker"._private_jobs
  where id = any ($2::bigint[]) and (locked_by = $1::text or key is null)
  returning id, job_queue_id
)
,
failed as (
  update "graphile_worker"._private_jobs job
  set
    last_error = case
      when failure.verdict = 'snooze' and not
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
        then job.last_error
      else failure.message
    end,
    payload = coalesce(failure.new_payload::json, job.payload),
    max_attempts =
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
    ,
    attempts =
  case
    when failure.verdict = 'give_up' then greatest(job.attempts,
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
    )
    when failure.verdict = 'snooze' and not
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
      then greatest(0, job.attempts - 1)
    else job.attempts
  end
    ,
    run_at = greatest(now(), job.run_at) + interval '1 second' * case
      when failure.delay is not null and
  case
    when failure.verdict = 'give_up' then greatest(job.attempts,
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
    )
    when failure.verdict = 'snooze' and not
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
      then greatest(0, job.attempts - 1)
    else job.attempts
  end
        <
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
        then failure.delay
      else exp(least(
  case
    when failure.verdict = 'give_up' then greatest(job.attempts,
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
    )
    when failure.verdict = 'snooze' and not
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
      then greatest(0, job.attempts - 1)
    else job.attempts
  end
        , 10)::double precision)
    end,
    locked_by = null,
    locked_at = null
  from unnest($6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::text[], $11::double precision[])
    as failure (job_id, message, new_payload, own_max_attempts, verdict, delay)
  where job.id = any (array[failure.job_id]) and job.locked_by = $1::text
  returning job.id, job.job_queue_id, job.is_available
),
ended as (
  select job_queue_id from completed
  union all
  select job_queue_id from failed
),
task (ids) as materialized (select $3::text::integer[]),
held_queue as materialized (
  select id from "graphile_worker"._private_job_queues
  where locked_by = $1
    and id = any (array(select job_queue_id from ended where job_queue_id is not null))
),
next as materialized (
  select head.place
  from held_queue cross join lateral (
    select job.ctid as place
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[held_queue.id])
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4)
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
    for update skip locked
  ) head
),
taken as (
  update "graphile_worker"._private_jobs job
  set attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5::timestamptz, now())
  where job.ctid = any (array(select place from next))
  returning job.*
),
released_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_by = null, locked_at = null
  where queue.locked_by = $1
    and queue.id = any (array(select id from held_queue except select job_queue_id from taken))
),
renewed_queue as (
  update "graphile_worker"._private_job_queues queue
  set locked_at = coalesce($5::timestamptz, now())
  where queue.locked_at < coalesce($5::timestamptz, now()) - interval '1 minute'
    and queue.id = any (array(select job_queue_id from taken))
)
select
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
  , (
    select case when count(*) < pg_catalog.cardinality($2::bigint[]) then coalesce(pg_catalog.array_agg(id), '{}') end
    from completed
  ) as completed
  , (select pg_catalog.array_agg(case when is_available then id else - id end) from failed) as failed
from (select) always left join taken on true
order by priority, run_at
