-- What databases of `schema.sql` had got as of 5fa23840: the Python-only objects 25 to 28, and with 28 the shared
-- functions for adding and removing. Never changed by hand.

-- Functions whose earlier form called `<>` of two arrays by its name. PostgreSQL has that operator for any array only, so one
-- for integer[] that another role had made in `public` was called instead, with the rights of the worker. The texts of 0013
-- and 0015 stay as they were; every database gets the safe functions by this number.
--
-- The first function includes parts of other fetches. If one of them changes, it must be created again by a file with a
-- new number; tests/migrations/test_mended_objects.py notices.

-- Locks the next jobs of limited tasks, as many as their limits leave room for.
--
-- Returns the columns of each job, unordered, then one row without an id. Its payload is a JSON object:
--   room          how many jobs could be locked at most
--   wait          seconds until a job may start again; null if no rate is used up
--   is_full       whether as many jobs run as may run at once
--   is_counted    whether the number of running jobs is limited
--   may_prefetch  whether jobs may be locked some time before they start
--   is_busy       another fetch uses one of the limits; nothing was done
--   is_missing    a limit has no row; nothing was done
--
-- Several statements, because each must see what the last holder of the limit has committed. In READ COMMITTED a single
-- one sees the tables as of its beginning, before it had the lock.
create or replace function "graphile_worker"._private_py_get_limited_jobs(
    pool_id text,
    task_ids text, -- an array literal such as {1,2}
    wanted integer,
    forbidden_flags text[], -- or null
    worker_time timestamptz, -- or null for the server's
    lowest smallint[], -- ranges of priorities to read, as for get_jobs_above_watermarks; or null
    highest smallint[],
    since double precision[],
    limit_names text[],
    is_wide boolean -- whether there are wide queues; see get_jobs for them
)
returns table (
    id bigint, payload text, priority smallint, run_at double precision, attempts smallint, max_attempts smallint,
    last_error text, created_at double precision, updated_at double precision, key text, locked_at double precision,
    revision integer, flags text, task_id integer, job_queue_id integer
)
language plpgsql
as $body$
#variable_conflict use_column
declare
    longest_delay constant double precision := 0.2; -- seconds from the lock of a prefetched job to its start
    limit_count integer := pg_catalog.cardinality($9);
    locked integer;
    moment timestamptz;
    rule record;
    smaller_burst double precision;
    tokens_of double precision[]; -- of each limit, in the order of names
    free_of integer[];
    nth integer := 0;
    held integer;
    asked integer := $3;
    room integer := $3;
    taken integer := 0;
    wait double precision;
    is_full boolean := false;
    is_counted boolean := false;
    may_prefetch boolean := true;
    tells_others boolean := false;
    queues_may_be_next boolean;
    places tid[];
    queue_ids integer[];
    moved jsonb; -- new queues by ctid
begin
    -- One fetch at a time. A pool that finds another at it comes back soon: waiting here would hold up the fetches of
    -- its other lanes, and those of every pool if one session hangs.
    perform from "graphile_worker"._private_py_limits
    where name = any ($9) order by name for update skip locked;
    get diagnostics locked = row_count;
    if locked < limit_count then
        select pg_catalog.json_build_object(
            case when count(*)::integer < limit_count then 'is_missing' else 'is_busy' end, true
        )
        into payload
        from "graphile_worker"._private_py_limits where name = any ($9);
        return next;
        return;
    end if;

    moment := clock_timestamp();
    for rule in
        select name, max_running, rate, burst, tokens, refilled_at
        from "graphile_worker"._private_py_limits where name = any ($9) order by name
    loop
        nth := nth + 1;
        if rule.max_running is not null then
            -- What ended, or was taken from its pool, does not count: the lock of the job is the truth.
            delete from "graphile_worker"._private_py_limit_holds hold
            where hold.limit_name = rule.name and not exists (
                select from "graphile_worker"._private_jobs job
                where job.id = hold.job_id and job.locked_by = hold.pool_id
            );
            select count(*)::integer into held
            from "graphile_worker"._private_py_limit_holds hold where hold.limit_name = rule.name;
            free_of[nth] := rule.max_running - held;
            room := least(room, free_of[nth]);
            is_counted := true;
        end if;
        if rule.rate is not null then
            -- A prefetched job starts later than its token was taken, when further tokens may have come. The bucket is
            -- smaller by what comes in that time, or nothing is prefetched.
            smaller_burst := rule.burst - rule.rate * longest_delay;
            if rule.rate * longest_delay >= 1::double precision
                and smaller_burst >= rule.burst / 2::double precision
            then
                rule.burst := smaller_burst;
            else
                may_prefetch := false;
            end if;
            tokens_of[nth] := least(
                rule.burst,
                rule.tokens + rule.rate
                * greatest(0::double precision, date_part('epoch', moment - rule.refilled_at))
            );
            room := least(room, floor(tokens_of[nth])::integer);
        end if;
    end loop;

    room := greatest(room, 0);
    if room > 0 then
        $3 := room;
        if not $10 then
            with recursive
-- Whether a job of a named queue may be next: one of the queues with waiting jobs is free, or there are too many to check.
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
            select may_be_next into queues_may_be_next from queues;
        end if;
        if $10 and $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: `queued` for queues that may run several jobs
-- at once. A job of a queue, its home, is moved to the row whose lock it takes: the home's own, or a free track's.
--
-- Jobs are considered as `queued` considers them. Tracks that are closed take no job, but their jobs are those of the home.
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- The jobs of each home, the first ones first, in arrays: a join of jobs and free rows would compare each with each.
home as materialized (
  select
    home_id as id, min(priority) as priority, min(run_at) as run_at,
    pg_catalog.array_agg(place order by priority, run_at) as places,
    pg_catalog.array_agg(job_queue_id order by priority, run_at) as queues,
    pg_catalog.array_agg(priority order by priority, run_at) as priorities,
    pg_catalog.array_agg(run_at order by priority, run_at) as times
  from (
    select examined.*, coalesce(track.home_id, examined.job_queue_id) as home_id
    from examined
    left join "graphile_worker"._private_py_tracks track on track.queue_id = examined.job_queue_id
  ) examined
  group by home_id
),
queued as materialized (
  select
    job.place, member.id as job_queue_id, home.queues[member.turn] as old_queue_id,
    home.priorities[member.turn] as priority, home.times[member.turn] as run_at
  from (select * from home order by priority, run_at) home
  cross join lateral (
    select locked.id, (row_number() over ())::integer as turn
    from (
      select queue.id from "graphile_worker"._private_job_queues queue
      where queue.is_available and queue.id = any (
        array(
          select home.id
          union all
          select track.queue_id from "graphile_worker"._private_py_tracks track
          where track.home_id = home.id and not track.is_closed
        )
      )
      limit pg_catalog.cardinality(home.places)
      for update skip locked
    ) locked
  ) member
  cross join lateral (
    -- The turn makes this run after the lock of the row; see `queued`.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = home.places[member.turn] and job.job_queue_id = home.queues[member.turn]
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = home.places[member.turn] -- otherwise it was changed by now and cannot be taken
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
-- Of each other home with a free row, the first job.
other_head as materialized (
  select distinct on (other.home_id) next.place, other.id as queue_id, other.home_id, next.priority, next.run_at
  from (
    select other_queue.id, coalesce(track.home_id, other_queue.id) as home_id
    from (
      select id from other_queue
      limit (
        select case
          when exists (
            select from home
            join "graphile_worker"._private_job_queues queue on queue.id = home.id and queue.is_available
          ) then 2 * $3 + 40
        end
      )
    ) other_queue
    left join "graphile_worker"._private_py_tracks track on track.queue_id = other_queue.id
    where other_queue.id is not null
  ) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
  ) free
  cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other.home_id not in (select id from home)
  order by other.home_id, next.priority, next.run_at
),
other_queued as materialized (
  select job.place, queue.id as job_queue_id, other.queue_id as old_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = other.queue_id and queue.id is not null
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id, old_queue_id from (
    select place, job_queue_id, job_queue_id as old_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;
        elsif $10 then
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
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
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
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
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: `queued` for queues that may run several jobs
-- at once. A job of a queue, its home, is moved to the row whose lock it takes: the home's own, or a free track's.
--
-- Jobs are considered as `queued` considers them. Tracks that are closed take no job, but their jobs are those of the home.
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- The jobs of each home, the first ones first, in arrays: a join of jobs and free rows would compare each with each.
home as materialized (
  select
    home_id as id, min(priority) as priority, min(run_at) as run_at,
    pg_catalog.array_agg(place order by priority, run_at) as places,
    pg_catalog.array_agg(job_queue_id order by priority, run_at) as queues,
    pg_catalog.array_agg(priority order by priority, run_at) as priorities,
    pg_catalog.array_agg(run_at order by priority, run_at) as times
  from (
    select examined.*, coalesce(track.home_id, examined.job_queue_id) as home_id
    from examined
    left join "graphile_worker"._private_py_tracks track on track.queue_id = examined.job_queue_id
  ) examined
  group by home_id
),
queued as materialized (
  select
    job.place, member.id as job_queue_id, home.queues[member.turn] as old_queue_id,
    home.priorities[member.turn] as priority, home.times[member.turn] as run_at
  from (select * from home order by priority, run_at) home
  cross join lateral (
    select locked.id, (row_number() over ())::integer as turn
    from (
      select queue.id from "graphile_worker"._private_job_queues queue
      where queue.is_available and queue.id = any (
        array(
          select home.id
          union all
          select track.queue_id from "graphile_worker"._private_py_tracks track
          where track.home_id = home.id and not track.is_closed
        )
      )
      limit pg_catalog.cardinality(home.places)
      for update skip locked
    ) locked
  ) member
  cross join lateral (
    -- The turn makes this run after the lock of the row; see `queued`.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = home.places[member.turn] and job.job_queue_id = home.queues[member.turn]
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = home.places[member.turn] -- otherwise it was changed by now and cannot be taken
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
-- Of each other home with a free row, the first job.
other_head as materialized (
  select distinct on (other.home_id) next.place, other.id as queue_id, other.home_id, next.priority, next.run_at
  from (
    select other_queue.id, coalesce(track.home_id, other_queue.id) as home_id
    from (
      select id from other_queue
      limit (
        select case
          when exists (
            select from home
            join "graphile_worker"._private_job_queues queue on queue.id = home.id and queue.is_available
          ) then 2 * $3 + 40
        end
      )
    ) other_queue
    left join "graphile_worker"._private_py_tracks track on track.queue_id = other_queue.id
    where other_queue.id is not null
  ) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
  ) free
  cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other.id]) -- see write_outcomes
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other.home_id not in (select id from home)
  order by other.home_id, next.priority, next.run_at
),
other_queued as materialized (
  select job.place, queue.id as job_queue_id, other.queue_id as old_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = other.queue_id and queue.id is not null
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id, old_queue_id from (
    select place, job_queue_id, job_queue_id as old_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;
        elsif queues_may_be_next and $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks: finds the next job of each named queue, and chooses the first of these
-- and of the jobs of `plain`. `take_chosen` takes them.
--
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
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
-- A bounded number of jobs of named queues in run order ...
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from (
    select candidate.priority from queue_priority candidate
    where
true -- any priority
  ) queue_priority cross join lateral (
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- ... of which the first of each queue is taken, if the rows of the queue and the job can be locked without waiting.
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
    -- The queue's id makes this run after the lock of the queue: jobs of a queue that another pool has locked must not be
    -- locked even briefly, or that pool would skip them when it continues the queue.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (
    select * from other_head candidate
    where
true -- any priority
    order by priority, run_at
  ) other
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
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null)
            into places, queue_ids;
        elsif queues_may_be_next then
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
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
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
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
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks: finds the next job of each named queue, and chooses the first of these
-- and of the jobs of `plain`. `take_chosen` takes them.
--
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
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
-- A bounded number of jobs of named queues in run order ...
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from (
    select candidate.priority from queue_priority candidate
    where
true -- any priority
  ) queue_priority cross join lateral (
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- ... of which the first of each queue is taken, if the rows of the queue and the job can be locked without waiting.
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
    -- The queue's id makes this run after the lock of the queue: jobs of a queue that another pool has locked must not be
    -- locked even briefly, or that pool would skip them when it continues the queue.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (
    select * from other_head candidate
    where
true -- any priority
    order by priority, run_at
  ) other
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
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null)
            into places, queue_ids;
        elsif $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
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
      and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
            nothing as (select)
            select array(select place from plain) into places;
        else
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
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
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
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
        and ($4::text[] is null or job.flags is null or not job.flags ?| $4::text[])
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
            nothing as (select)
            select array(select place from plain) into places;
        end if;
        taken := pg_catalog.cardinality(places);
    end if;

    nth := 0;
    for rule in
        select name, max_running, rate, refilled_at, is_awaited
        from "graphile_worker"._private_py_limits where name = any ($9) order by name
    loop
        nth := nth + 1;
        if rule.rate is not null then
            tokens_of[nth] := tokens_of[nth] - taken::double precision;
            if tokens_of[nth] < 1::double precision then
                wait := greatest(wait, (1::double precision - tokens_of[nth]) / rule.rate);
            end if;
        end if;
        if rule.max_running is not null then
            free_of[nth] := free_of[nth] - taken;
            is_full := is_full or free_of[nth] <= 0;
        end if;
        if rule.is_awaited and (rule.max_running is null or free_of[nth] > 0) then
            tells_others := true;
            update "graphile_worker"._private_py_limits set is_awaited = false where name = rule.name;
        elsif free_of[nth] <= 0 and taken < asked and not rule.is_awaited then
            update "graphile_worker"._private_py_limits set is_awaited = true where name = rule.name;
        end if;
        -- A clock that was set back, as by a failover, would otherwise refill nothing until it catches up.
        if rule.rate is not null and (taken > 0 or rule.refilled_at > moment) then
            update "graphile_worker"._private_py_limits
            set tokens = tokens_of[nth], refilled_at = moment where name = rule.name;
        end if;
    end loop;
    if tells_others then
        perform pg_notify('worker:py', '{"limits":1}');
    end if;

    if taken > 0 then
        if is_counted then
            insert into "graphile_worker"._private_py_limit_holds as hold (limit_name, job_id, pool_id)
            select limits.name, job.id, $1
            from "graphile_worker"._private_py_limits limits
            cross join "graphile_worker"._private_jobs job
            where limits.name = any ($9) and limits.max_running is not null and job.ctid = any (places)
            on conflict on constraint _private_py_limit_holds_pkey do update set pool_id = excluded.pool_id;
        end if;
        if pg_catalog.cardinality(queue_ids) > 0 then
            update "graphile_worker"._private_job_queues queue
            set locked_by = $1, locked_at = coalesce($5, now())
            where queue.id = any (queue_ids);
        end if;
        return query
        update "graphile_worker"._private_jobs job
        set
            attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5, now()),
            job_queue_id = coalesce((moved ->> job.ctid::text)::integer, job.job_queue_id)
        where job.ctid = any (places)
        returning
  -- The columns of a fetched job, in the order of Job's fields. As few as possible, for there are tens of thousands per
  -- second: the worker knows the pool's id and the task's identifier.
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
        ;
    end if;
    payload := pg_catalog.json_build_object(
        'room', room, 'wait', wait, 'is_full', is_full, 'is_counted', is_counted, 'may_prefetch', may_prefetch
    );
    return next;
end;
$body$;

-- Gives queues as many tracks as their widths ask for. A width that was set by hand counts, else the one in new_widths;
-- null leaves it as it is. The ids may be those of tracks. Returns how many tracks were made and closed.
create or replace function "graphile_worker"._private_py_set_tracks(
    new_queue_ids integer[],
    new_widths integer[]
)
returns bigint
language plpgsql
as $body$
declare
    v_homes integer[];
    v_widths integer[];
    v_made bigint;
    v_closing integer[];
    v_idle integer[];
    v_seqscan text := current_setting('enable_seqscan');
    v_setting text;
begin
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- Most have their tracks: then this is all. Entries without a row are those of tracks that a clean-up has deleted.
    -- Look-ups instead of joins: the sessions of workers have settings that would make bad plans for joins.
    select pg_catalog.array_agg(home.id order by home.id), pg_catalog.array_agg(home.width order by home.id)
    into v_homes, v_widths
    from (
        select
            home.id, tracks.open,
            coalesce(
                (
                    select by_hand.width::bigint
                    from "graphile_worker"._private_py_queue_widths as by_hand
                    where by_hand.queue_name = home.queue_name
                ),
                wanted.width::bigint,
                tracks.entries + 1
            )::integer as width
        from (
            select
                coalesce(
                    (
                        select track.home_id
                        from "graphile_worker"._private_py_tracks as track
                        where track.queue_id = given.id
                    ),
                    given.id
                ) as id,
                max(given.width) as width
            from unnest(new_queue_ids, new_widths) as given (id, width)
            group by 1
        ) as wanted
        cross join lateral (
            select queue.id, queue.queue_name
            from "graphile_worker"._private_job_queues as queue
            where queue.id = wanted.id
            limit 1
        ) as home
        cross join lateral (
            select
                count(*) as entries,
                count(*) filter (
                    where exists (
                        select from "graphile_worker"._private_job_queues as queue where queue.id = track.queue_id
                    )
                ) as open
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = home.id and not track.is_closed
        ) as tracks
        where pg_catalog.length(home.queue_name) <= 120
    ) as home
    where home.open <> home.width - 1;
    if v_homes is null then
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
        return 0;
    end if;

    -- One at a time, in the order of the ids; what follows sees what others have done meanwhile.
    perform home.id
    from "graphile_worker"._private_job_queues as home
    where home.id = any(v_homes)
    order by home.id
    for update;
    v_widths := array(
        select
            coalesce(
                (
                    select by_hand.width
                    from "graphile_worker"._private_py_queue_widths as by_hand
                    where by_hand.queue_name = (
                        select home.queue_name
                        from "graphile_worker"._private_job_queues as home
                        where home.id = wanted.id
                    )
                ),
                wanted.width
            )
        from unnest(v_homes, v_widths) with ordinality as wanted (id, width, place)
        order by wanted.place
    );

    -- Entries of tracks that were deleted, and closed tracks whose jobs have ended.
    delete from "graphile_worker"._private_py_tracks as track
    where track.home_id = any(v_homes)
    and not exists (
        select from "graphile_worker"._private_job_queues as queue where queue.id = track.queue_id
    );
    v_idle := array(
        select track.queue_id
        from "graphile_worker"._private_py_tracks as track
        where track.home_id = any(v_homes) and track.is_closed
    );
    if pg_catalog.cardinality(v_idle) > 0 then
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true); -- no index has all jobs of a queue
        v_idle := array(
            select idle.id from pg_catalog.unnest(v_idle) as idle (id)
            except
            select job.job_queue_id from "graphile_worker"._private_jobs as job where job.job_queue_id = any(v_idle)
        );
        delete from "graphile_worker"._private_job_queues as queue where queue.id = any(v_idle);
        delete from "graphile_worker"._private_py_tracks as track where track.queue_id = any(v_idle);
        v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);
    end if;

    -- Too few: make more. Those of a paused queue are held as well.
    with wanted as (
        select
            home.id, home.queue_name, given.width, tracks.open, tracks.entries,
            home.locked_by is not distinct from 'py:hold' as is_held
        from unnest(v_homes, v_widths) as given (id, width)
        cross join lateral (
            select queue.id, queue.queue_name, queue.locked_by
            from "graphile_worker"._private_job_queues as queue
            where queue.id = given.id
            limit 1
        ) as home
        cross join lateral (
            select
                (count(*) filter (where not track.is_closed))::integer as open, count(*)::integer as entries
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = home.id
        ) as tracks
    ),
    chosen as materialized (
        select wanted.id as home_id, free.name, wanted.is_held
        from wanted
        cross join lateral (
            select names.name
            from (
                select number, wanted.queue_name || ' [' || number::text || ']' as name
                from pg_catalog.generate_series(2, wanted.width + wanted.entries) as number
            ) as names
            where not exists (
                select
                from "graphile_worker"._private_py_tracks as track
                where track.queue_id = (
                    select queue.id
                    from "graphile_worker"._private_job_queues as queue
                    where queue.queue_name = names.name
                )
                and (track.home_id = wanted.id or track.is_closed)
            )
            order by names.number
            limit pg_catalog.int4larger(0, wanted.width - 1 - wanted.open)
        ) as free
    ),
    homes as materialized (
        select pg_catalog.jsonb_object_agg(chosen.name, chosen.home_id) as ids from chosen
    ),
    made as (
        insert into "graphile_worker"._private_job_queues as queue (queue_name, locked_by, locked_at)
        select
            chosen.name,
            case when chosen.is_held then 'py:hold' end,
            case when chosen.is_held then '9999-01-01 00:00:00+00'::timestamptz end
        from chosen
        order by chosen.name
        on conflict on constraint job_queues_queue_name_key do update set
            locked_by = coalesce(excluded.locked_by, queue.locked_by),
            locked_at = coalesce(excluded.locked_at, queue.locked_at)
        returning queue.id, queue.queue_name
    ),
    known as (
        insert into "graphile_worker"._private_py_tracks as track (queue_id, home_id)
        select made.id, ((select homes.ids from homes) ->> made.queue_name)::integer
        from made
        on conflict on constraint _private_py_tracks_pkey do update set home_id = excluded.home_id, is_closed = false
        returning track.queue_id, track.home_id
    ),
    held as (
        insert into "graphile_worker"._private_py_queue_holds as hold (queue_id, until, reason, held_at)
        select known.queue_id, of_home.until, of_home.reason, of_home.held_at
        from known
        cross join lateral (
            select hold.until, hold.reason, hold.held_at
            from "graphile_worker"._private_py_queue_holds as hold
            where hold.queue_id = known.home_id and hold.job_id is null
            limit 1
        ) as of_home
        on conflict on constraint _private_py_queue_holds_pkey do nothing
    )
    select count(*) into v_made from known;

    -- Too many: close some, free ones first. Every runtime leaves the row of a closed track alone, and its jobs go back to
    -- the home; the job that runs there comes back to it by a fetch.
    v_closing := array(
        select surplus.id
        from unnest(v_homes, v_widths) as wanted (id, width)
        cross join lateral (
            select track.queue_id as id
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = wanted.id and not track.is_closed
            order by
                (
                    select queue.locked_at
                    from "graphile_worker"._private_job_queues as queue
                    where queue.id = track.queue_id
                ) nulls last,
                track.queue_id
            offset wanted.width - 1
        ) as surplus
    );
    if pg_catalog.cardinality(v_closing) > 0 then
        perform queue.id
        from "graphile_worker"._private_job_queues as queue
        where queue.id = any(v_closing)
        order by queue.id
        for update;
        update "graphile_worker"._private_job_queues as queue
        set locked_by = 'py:hold', locked_at = '9999-01-01 00:00:00+00'
        where queue.id = any(v_closing);
        update "graphile_worker"._private_py_tracks as track
        set is_closed = true
        where track.queue_id = any(v_closing);
        delete from "graphile_worker"._private_py_queue_holds as hold where hold.queue_id = any(v_closing);
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
        update "graphile_worker"._private_jobs as job
        set job_queue_id = track.home_id
        from "graphile_worker"._private_py_tracks as track
        where track.queue_id = any(v_closing) and job.job_queue_id = track.queue_id and job.locked_at is null;
    end if;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    if v_made > 0 then
        perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || v_made::text || '}');
    end if;
    perform pg_notify('worker:py', '{"widths":1}');
    return v_made + coalesce(pg_catalog.cardinality(v_closing), 0)::bigint;
end;
$body$;

-- These functions find nothing by a name outside of pg_catalog. What is not named in search_path is searched first for tables
-- and types, in the case of temporary ones: they come last now.
alter function "graphile_worker"._private_py_add_partition(regclass, date) set search_path to pg_catalog, pg_temp;
alter function "graphile_worker"._private_py_drop_partitions(regclass, date) set search_path to pg_catalog, pg_temp;
alter function "graphile_worker"._private_py_ready_jobs(integer, text[]) set search_path to pg_catalog, pg_temp;
alter function "graphile_worker"._private_py_oldest_ready_age() set search_path to pg_catalog, pg_temp;
alter function "graphile_worker"._private_py_note_death() set search_path to pg_catalog, pg_temp;

insert into "graphile_worker"._private_py_migrations (id, name)
values (25, 'safe_operators')
on conflict (id) do nothing;

-- The register of workers that Rust workers keep, by the names that they use.
--
-- A Rust worker with recovery creates it when it starts, and some milliseconds later takes the jobs of every pool that has
-- no row in it. So it has to exist, with a row of each pool, before the first Rust worker comes. Rust's own migration adds
-- what is missing and replaces the functions. Where the table exists nothing is changed: Rust's functions may know more.
-- Only for a shared ledger at 20 or later, as here: from 19 Rust would install its 20, which expects no such table.
do $body$
begin
    begin
        perform from "graphile_worker"._private_workers limit 0;
        return;
    exception
        when insufficient_privilege then return;
        when undefined_table then null;
    end;

    -- Without row security: Rust workers may connect as another role.
    create table "graphile_worker"._private_workers (
        id text not null,
        last_heartbeat_at timestamptz not null,
        started_at timestamptz not null default pg_catalog.now(),
        metadata jsonb,
        constraint _private_workers_pkey primary key (id)
    );

    create index _private_workers_last_heartbeat_at_idx
    on "graphile_worker"._private_workers (last_heartbeat_at);

    create or replace function "graphile_worker".worker_heartbeat(worker_id text, metadata json default null)
    returns void
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        insert into "graphile_worker"._private_workers as worker (id, last_heartbeat_at, metadata)
        values ($1, now(), $2::jsonb)
        on conflict (id) do update
        set last_heartbeat_at = excluded.last_heartbeat_at, metadata = coalesce(excluded.metadata, worker.metadata);
    $inner_body$;

    create or replace function "graphile_worker".worker_deregister(worker_id text)
    returns void
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        delete from "graphile_worker"._private_workers as worker where worker.id = $1;
    $inner_body$;

    create or replace function "graphile_worker".list_stale_workers(stale_threshold interval)
    returns table (worker_id text)
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        select worker.id
        from "graphile_worker"._private_workers as worker
        where worker.last_heartbeat_at < now() - $1;
    $inner_body$;

    create or replace function "graphile_worker".list_orphan_locked_workers(stale_threshold interval)
    returns table (worker_id text)
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        select locks.locked_by
        from (
            select job.locked_by
            from "graphile_worker"._private_jobs as job
            where job.locked_by is not null and job.locked_at < now() - $1
            union
            select queue.locked_by
            from "graphile_worker"._private_job_queues as queue
            where queue.locked_by is not null and queue.locked_at < now() - $1
        ) as locks
        where not exists (
            select from "graphile_worker"._private_workers as worker where worker.id = locks.locked_by
        );
    $inner_body$;

    -- A job whose key was used again or removed while it was locked does not come back; see recovery/recover_jobs.
    create or replace function "graphile_worker".recover_dead_worker_jobs(
        worker_ids text[], recovery_delay interval default '0'
    )
    returns integer
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        with
        recovered as (
            update "graphile_worker"._private_jobs as job
            set
                attempts = case
                    when job.key is null and job.attempts >= job.max_attempts
                        and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.attempts
                    else greatest(0, job.attempts - 1)
                end,
                run_at = greatest(job.run_at, now() + $2),
                last_error = 'Job recovered after worker interruption',
                locked_by = null,
                locked_at = null,
                updated_at = now()
            where job.locked_by = any ($1)
            returning job.id
        ),
        freed as (
            update "graphile_worker"._private_job_queues as queue
            set locked_by = null, locked_at = null
            where queue.locked_by = any ($1)
        )
        select count(*)::integer from recovered;
    $inner_body$;

    create or replace function "graphile_worker".delete_stale_workers(worker_ids text[])
    returns void
    language sql
    set search_path to pg_catalog, pg_temp
    as $inner_body$
        delete from "graphile_worker"._private_workers as worker where worker.id = any ($1);
    $inner_body$;
end;
$body$;

insert into "graphile_worker"._private_py_migrations (id, name)
values (26, 'rust_register')
on conflict (id) do nothing;

-- Waiting jobs with a key and without a queue, by task. A held batch locks none of them: it looks here how far it may go
-- before one of them is next, and what to lock in the ordinary way beside it. Jobs without a key are not in it and pay
-- nothing for it. By task first: those of tasks that a worker does not have are passed with one probe.
create index if not exists _private_py_jobs_keyed_index
on "graphile_worker"._private_jobs (task_id, priority, run_at)
where is_available and job_queue_id is null and key is not null;

insert into "graphile_worker"._private_py_migrations (id, name)
values (27, 'keyed_index')
on conflict (id) do nothing;

-- Functions whose earlier form called `current_setting('...')` by its name. Such a call, of one literal without a type, is a
-- conversion to a type of that name if there is one, so the checks of a domain `current_setting` that another role had
-- made in `public` were run with the rights of the caller. The texts of 0014 and 0025 stay as they were; every database
-- gets the safe functions by this number. Shared functions are replaced here, too: see database/migrations/own_functions.py.

-- Adds one job that is unique by its arguments, which its key stands for, unless there is one.
--
-- Unlike unsafe_dedupe, a job that has failed permanently does not count: it loses its key, and the new job takes its
-- place. Only the Python package calls it; the unique index on keys holds for jobs of every runtime.

create or replace function "graphile_worker"._private_py_add_unique_job(
    new_task text,
    new_payload json,
    new_queue text,
    new_run_at timestamptz,
    new_max_attempts integer,
    new_key text,
    new_priority integer,
    new_flags text[],
    new_while text, -- waiting: a running job does not count, and has no further attempt; waiting or running
    is_announced boolean, -- notify workers; false if the caller does
    out job "graphile_worker"._private_jobs,
    out is_new boolean
)
language plpgsql
as $body$
declare
    v_task_id integer;
    v_queue_id integer;
    v_seqscan text := pg_catalog.current_setting('enable_seqscan');
    v_setting text;
begin
    is_new := false;
    -- Only plans with an index, whatever the size of the tables when they are made; see add_job.
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    loop
        -- The lock waits for a worker that is about to take the job, and keeps others from taking it before the caller
        -- has committed: what the caller has changed is seen by the job.
        select jobs.* into job
        from "graphile_worker"._private_jobs as jobs
        where jobs.key = new_key and jobs.is_available
        for update;
        exit when found;

        -- A running job is not locked: its worker must not wait for the caller. One that was cancelled does not count.
        if new_while = 'waiting or running' then
            select jobs.* into job
            from "graphile_worker"._private_jobs as jobs
            where jobs.key = new_key and jobs.locked_at is not null
            and not exists (
                select from "graphile_worker"._private_py_cancels as cancels where cancels.job_id = jobs.id
            );
            exit when found;
        end if;

        -- Any other job loses its key and its remaining attempts, as in add_job.
        update "graphile_worker"._private_jobs as jobs
        set key = null, attempts = jobs.max_attempts, updated_at = clock_timestamp()
        where jobs.key = new_key and not jobs.is_available
        and (
            new_while = 'waiting' or jobs.locked_at is null
            or exists (
                select from "graphile_worker"._private_py_cancels as cancels where cancels.job_id = jobs.id
            )
        );

        loop
            select tasks.id into v_task_id
            from "graphile_worker"._private_tasks as tasks
            where tasks.identifier = new_task;
            exit when found;
            insert into "graphile_worker"._private_tasks (identifier)
            values (new_task)
            on conflict on constraint tasks_identifier_key do nothing;
        end loop;
        while new_queue is not null loop
            select job_queues.id into v_queue_id
            from "graphile_worker"._private_job_queues as job_queues
            where job_queues.queue_name = new_queue;
            exit when found;
            insert into "graphile_worker"._private_job_queues (queue_name)
            values (new_queue)
            on conflict on constraint job_queues_queue_name_key do nothing;
        end loop;

        insert into "graphile_worker"._private_jobs as jobs
            (job_queue_id, task_id, payload, run_at, max_attempts, key, priority, flags)
        values (
            v_queue_id,
            v_task_id,
            coalesce(new_payload, '{}'::json),
            coalesce(new_run_at, now()),
            coalesce(new_max_attempts::smallint, 25::smallint),
            new_key,
            coalesce(new_priority::smallint, 0::smallint),
            case
                when new_flags is not null
                    then (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(new_flags) as flag)
            end
        )
        on conflict on constraint jobs_key_key1 do nothing
        returning jobs.* into job;
        is_new := found;
        exit when found;
    end loop;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    if is_new and is_announced then
        perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}');
    end if;
end;
$body$;

-- Gives queues as many tracks as their widths ask for. A width that was set by hand counts, else the one in new_widths;
-- null leaves it as it is. The ids may be those of tracks. Returns how many tracks were made and closed.
create or replace function "graphile_worker"._private_py_set_tracks(
    new_queue_ids integer[],
    new_widths integer[]
)
returns bigint
language plpgsql
as $body$
declare
    v_homes integer[];
    v_widths integer[];
    v_made bigint;
    v_closing integer[];
    v_idle integer[];
    v_seqscan text := pg_catalog.current_setting('enable_seqscan');
    v_setting text;
begin
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- Most have their tracks: then this is all. Entries without a row are those of tracks that a clean-up has deleted.
    -- Look-ups instead of joins: the sessions of workers have settings that would make bad plans for joins.
    select pg_catalog.array_agg(home.id order by home.id), pg_catalog.array_agg(home.width order by home.id)
    into v_homes, v_widths
    from (
        select
            home.id, tracks.open,
            coalesce(
                (
                    select by_hand.width::bigint
                    from "graphile_worker"._private_py_queue_widths as by_hand
                    where by_hand.queue_name = home.queue_name
                ),
                wanted.width::bigint,
                tracks.entries + 1
            )::integer as width
        from (
            select
                coalesce(
                    (
                        select track.home_id
                        from "graphile_worker"._private_py_tracks as track
                        where track.queue_id = given.id
                    ),
                    given.id
                ) as id,
                max(given.width) as width
            from unnest(new_queue_ids, new_widths) as given (id, width)
            group by 1
        ) as wanted
        cross join lateral (
            select queue.id, queue.queue_name
            from "graphile_worker"._private_job_queues as queue
            where queue.id = wanted.id
            limit 1
        ) as home
        cross join lateral (
            select
                count(*) as entries,
                count(*) filter (
                    where exists (
                        select from "graphile_worker"._private_job_queues as queue where queue.id = track.queue_id
                    )
                ) as open
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = home.id and not track.is_closed
        ) as tracks
        where pg_catalog.length(home.queue_name) <= 120
    ) as home
    where home.open <> home.width - 1;
    if v_homes is null then
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
        return 0;
    end if;

    -- One at a time, in the order of the ids; what follows sees what others have done meanwhile.
    perform home.id
    from "graphile_worker"._private_job_queues as home
    where home.id = any(v_homes)
    order by home.id
    for update;
    v_widths := array(
        select
            coalesce(
                (
                    select by_hand.width
                    from "graphile_worker"._private_py_queue_widths as by_hand
                    where by_hand.queue_name = (
                        select home.queue_name
                        from "graphile_worker"._private_job_queues as home
                        where home.id = wanted.id
                    )
                ),
                wanted.width
            )
        from unnest(v_homes, v_widths) with ordinality as wanted (id, width, place)
        order by wanted.place
    );

    -- Entries of tracks that were deleted, and closed tracks whose jobs have ended.
    delete from "graphile_worker"._private_py_tracks as track
    where track.home_id = any(v_homes)
    and not exists (
        select from "graphile_worker"._private_job_queues as queue where queue.id = track.queue_id
    );
    v_idle := array(
        select track.queue_id
        from "graphile_worker"._private_py_tracks as track
        where track.home_id = any(v_homes) and track.is_closed
    );
    if pg_catalog.cardinality(v_idle) > 0 then
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true); -- no index has all jobs of a queue
        v_idle := array(
            select idle.id from pg_catalog.unnest(v_idle) as idle (id)
            except
            select job.job_queue_id from "graphile_worker"._private_jobs as job where job.job_queue_id = any(v_idle)
        );
        delete from "graphile_worker"._private_job_queues as queue where queue.id = any(v_idle);
        delete from "graphile_worker"._private_py_tracks as track where track.queue_id = any(v_idle);
        v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);
    end if;

    -- Too few: make more. Those of a paused queue are held as well.
    with wanted as (
        select
            home.id, home.queue_name, given.width, tracks.open, tracks.entries,
            home.locked_by is not distinct from 'py:hold' as is_held
        from unnest(v_homes, v_widths) as given (id, width)
        cross join lateral (
            select queue.id, queue.queue_name, queue.locked_by
            from "graphile_worker"._private_job_queues as queue
            where queue.id = given.id
            limit 1
        ) as home
        cross join lateral (
            select
                (count(*) filter (where not track.is_closed))::integer as open, count(*)::integer as entries
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = home.id
        ) as tracks
    ),
    chosen as materialized (
        select wanted.id as home_id, free.name, wanted.is_held
        from wanted
        cross join lateral (
            select names.name
            from (
                select number, wanted.queue_name || ' [' || number::text || ']' as name
                from pg_catalog.generate_series(2, wanted.width + wanted.entries) as number
            ) as names
            where not exists (
                select
                from "graphile_worker"._private_py_tracks as track
                where track.queue_id = (
                    select queue.id
                    from "graphile_worker"._private_job_queues as queue
                    where queue.queue_name = names.name
                )
                and (track.home_id = wanted.id or track.is_closed)
            )
            order by names.number
            limit pg_catalog.int4larger(0, wanted.width - 1 - wanted.open)
        ) as free
    ),
    homes as materialized (
        select pg_catalog.jsonb_object_agg(chosen.name, chosen.home_id) as ids from chosen
    ),
    made as (
        insert into "graphile_worker"._private_job_queues as queue (queue_name, locked_by, locked_at)
        select
            chosen.name,
            case when chosen.is_held then 'py:hold' end,
            case when chosen.is_held then '9999-01-01 00:00:00+00'::timestamptz end
        from chosen
        order by chosen.name
        on conflict on constraint job_queues_queue_name_key do update set
            locked_by = coalesce(excluded.locked_by, queue.locked_by),
            locked_at = coalesce(excluded.locked_at, queue.locked_at)
        returning queue.id, queue.queue_name
    ),
    known as (
        insert into "graphile_worker"._private_py_tracks as track (queue_id, home_id)
        select made.id, ((select homes.ids from homes) ->> made.queue_name)::integer
        from made
        on conflict on constraint _private_py_tracks_pkey do update set home_id = excluded.home_id, is_closed = false
        returning track.queue_id, track.home_id
    ),
    held as (
        insert into "graphile_worker"._private_py_queue_holds as hold (queue_id, until, reason, held_at)
        select known.queue_id, of_home.until, of_home.reason, of_home.held_at
        from known
        cross join lateral (
            select hold.until, hold.reason, hold.held_at
            from "graphile_worker"._private_py_queue_holds as hold
            where hold.queue_id = known.home_id and hold.job_id is null
            limit 1
        ) as of_home
        on conflict on constraint _private_py_queue_holds_pkey do nothing
    )
    select count(*) into v_made from known;

    -- Too many: close some, free ones first. Every runtime leaves the row of a closed track alone, and its jobs go back to
    -- the home; the job that runs there comes back to it by a fetch.
    v_closing := array(
        select surplus.id
        from unnest(v_homes, v_widths) as wanted (id, width)
        cross join lateral (
            select track.queue_id as id
            from "graphile_worker"._private_py_tracks as track
            where track.home_id = wanted.id and not track.is_closed
            order by
                (
                    select queue.locked_at
                    from "graphile_worker"._private_job_queues as queue
                    where queue.id = track.queue_id
                ) nulls last,
                track.queue_id
            offset wanted.width - 1
        ) as surplus
    );
    if pg_catalog.cardinality(v_closing) > 0 then
        perform queue.id
        from "graphile_worker"._private_job_queues as queue
        where queue.id = any(v_closing)
        order by queue.id
        for update;
        update "graphile_worker"._private_job_queues as queue
        set locked_by = 'py:hold', locked_at = '9999-01-01 00:00:00+00'
        where queue.id = any(v_closing);
        update "graphile_worker"._private_py_tracks as track
        set is_closed = true
        where track.queue_id = any(v_closing);
        delete from "graphile_worker"._private_py_queue_holds as hold where hold.queue_id = any(v_closing);
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
        update "graphile_worker"._private_jobs as job
        set job_queue_id = track.home_id
        from "graphile_worker"._private_py_tracks as track
        where track.queue_id = any(v_closing) and job.job_queue_id = track.queue_id and job.locked_at is null;
    end if;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    if v_made > 0 then
        perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || v_made::text || '}');
    end if;
    perform pg_notify('worker:py', '{"widths":1}');
    return v_made + coalesce(pg_catalog.cardinality(v_closing), 0)::bigint;
end;
$body$;

-- add_job(...): add one job, or replace, keep or merge the waiting one that has the same key.
--
-- Returns the job's row, never an empty one. Three cases, the most frequent first:
--   no key            one insert (task and queue are created first only if it finds them missing)
--   a key             update the job that has it; insert where none is left to update
--   unsafe_dedupe     count a repetition on the job that has the key, whatever its state; else insert

create or replace function "graphile_worker".add_job(
    identifier text,
    payload json default null,
    queue_name text default null,
    run_at timestamptz default null,
    max_attempts integer default null,
    job_key text default null,
    priority integer default null,
    flags text[] default null,
    job_key_mode text default 'replace'
)
returns "graphile_worker"._private_jobs
language plpgsql
as $body$
declare
    v_job "graphile_worker"._private_jobs;
    v_flags jsonb;
    v_task_id integer;
    v_queue_id integer;
    v_seqscan text;
    v_setting text;
begin
    if job_key is not null and job_key_mode not in ('replace', 'preserve_run_at', 'unsafe_dedupe') then
        raise exception using
            errcode = 'GWBKM',
            message = pg_catalog.format('job_key_mode is %L', job_key_mode),
            hint = 'Use replace, preserve_run_at or unsafe_dedupe.';
    end if;

    if flags is not null then
        v_flags := (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(flags) as flag);
    end if;

    if job_key is null and queue_name is null then
        insert into "graphile_worker"._private_jobs as jobs
            (task_id, payload, run_at, max_attempts, priority, flags)
        select
            tasks.id,
            coalesce(add_job.payload, '{}'::json),
            coalesce(add_job.run_at, now()),
            coalesce(add_job.max_attempts::smallint, 25::smallint),
            coalesce(add_job.priority::smallint, 0::smallint),
            v_flags
        from "graphile_worker"._private_tasks as tasks
        where tasks.identifier = add_job.identifier
        returning jobs.* into v_job;

        if found then
            perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}');
            return v_job;
        end if;
    end if;

    -- A session keeps its plans. One made while a table was empty would go on to read the whole of it, row by
    -- row, after a burst of new jobs, until the next analyze; so only plans with an index are made here.
    v_seqscan := pg_catalog.current_setting('enable_seqscan');
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- Names that exist cost a look, not an identity value. A name may appear (somebody else adds it) or vanish
    -- (clean-up) between two statements, hence the loops.
    loop
        select tasks.id into v_task_id
        from "graphile_worker"._private_tasks as tasks
        where tasks.identifier = add_job.identifier;
        exit when found;

        insert into "graphile_worker"._private_tasks as tasks (identifier)
        values (add_job.identifier)
        on conflict on constraint tasks_identifier_key do nothing
        returning tasks.id into v_task_id;
        exit when found;
    end loop;

    if queue_name is not null then
        loop
            select job_queues.id into v_queue_id
            from "graphile_worker"._private_job_queues as job_queues
            where job_queues.queue_name = add_job.queue_name;
            exit when found;

            insert into "graphile_worker"._private_job_queues as job_queues (queue_name)
            values (add_job.queue_name)
            on conflict on constraint job_queues_queue_name_key do nothing
            returning job_queues.id into v_queue_id;
            exit when found;
        end loop;
    end if;

    -- Each round ends with a row of ours or finds that somebody else changed who has the key; then it starts
    -- over with a fresh view. All statements wait for whoever holds the row, and judge what they then find.
    loop
        if job_key is not null and job_key_mode = 'unsafe_dedupe' then
            update "graphile_worker"._private_jobs as jobs
            set revision = jobs.revision + 1, updated_at = now()
            where jobs.key = add_job.job_key
            returning jobs.* into v_job;
            exit when found;
        elsif job_key is not null then
            -- A waiting job takes the new values; any other (running, or out of attempts) gives up its key and is
            -- not tried again. Except for a batch that runs: arrays are joined and not replaced, so nothing stands
            -- in for its items. It keeps its attempts and retries what is left of it under no key.
            update "graphile_worker"._private_jobs as jobs
            set
                key = case when jobs.is_available then jobs.key end,
                job_queue_id = case when jobs.is_available then v_queue_id else jobs.job_queue_id end,
                task_id = case when jobs.is_available then v_task_id else jobs.task_id end,
                payload = case
                    when not jobs.is_available then jobs.payload
                    when json_typeof(jobs.payload) = 'array' and json_typeof(add_job.payload) = 'array'
                        -- Depends on the row, or the planner would convert it although there is nothing to merge.
                        then (
                            jobs.payload::jsonb || (case when jobs.is_available then add_job.payload end)::jsonb
                        )::json
                    else coalesce(add_job.payload, '{}'::json)
                end,
                run_at = case
                    when not jobs.is_available then jobs.run_at
                    when job_key_mode = 'preserve_run_at' and jobs.attempts = 0 then jobs.run_at
                    else coalesce(add_job.run_at, now())
                end,
                priority = case
                    when jobs.is_available then coalesce(add_job.priority::smallint, 0::smallint)
                    else jobs.priority
                end,
                max_attempts = case
                    when jobs.is_available then coalesce(add_job.max_attempts::smallint, 25::smallint)
                    else jobs.max_attempts
                end,
                flags = case when jobs.is_available then v_flags else jobs.flags end,
                attempts = case
                    when jobs.is_available then 0
                    when jobs.locked_at is not null and json_typeof(jobs.payload) = 'array'
                        and json_typeof(add_job.payload) = 'array' then jobs.attempts
                    else jobs.max_attempts
                end,
                last_error = case when jobs.is_available then null else jobs.last_error end,
                revision = case when jobs.is_available then jobs.revision + 1 else jobs.revision end,
                -- That a running job gave up its key is seen by a time after its lock, however old this transaction is.
                updated_at = case
                    when jobs.is_available then now()
                    when jobs.locked_at is not null and json_typeof(jobs.payload) = 'array'
                        and json_typeof(add_job.payload) = 'array' then jobs.updated_at
                    else clock_timestamp()
                end
            where jobs.key = add_job.job_key
            returning jobs.* into v_job;
            exit when found and v_job.key is not null;
        end if;

        insert into "graphile_worker"._private_jobs as jobs
            (job_queue_id, task_id, payload, run_at, max_attempts, key, priority, flags)
        values (
            v_queue_id,
            v_task_id,
            coalesce(add_job.payload, '{}'::json),
            coalesce(add_job.run_at, now()),
            coalesce(add_job.max_attempts::smallint, 25::smallint),
            add_job.job_key,
            coalesce(add_job.priority::smallint, 0::smallint),
            v_flags
        )
        on conflict on constraint jobs_key_key1 do nothing
        returning jobs.* into v_job;
        exit when found;
    end loop;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    if job_key is null or job_key_mode is distinct from 'unsafe_dedupe' or v_job.revision = 0 then
        perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1}');
    end if;
    return v_job;
end;
$body$;

-- add_jobs(specs, job_key_preserve_run_at): add many jobs at once, with one notification.
--
-- Returns one row per spec, in the order of the specs. Jobs without a key go in with one insert. A spec with a
-- key updates the waiting job that has it, or detaches a running or failed one from it and adds a new job.

create or replace function "graphile_worker".add_jobs(
    specs "graphile_worker".job_spec[],
    job_key_preserve_run_at boolean default false
)
returns setof "graphile_worker"._private_jobs
language plpgsql
as $body$
declare
    v_count bigint := pg_catalog.cardinality(specs);
    v_key_count bigint;
    v_queued_count bigint;
    v_new_tasks boolean;
    v_todo "graphile_worker".job_spec[] := specs;
    v_cut_off bigint;
    v_new_ids bigint[];
    v_unkeyed_ids bigint[];
    v_seqscan text;
    v_setting text;
begin
    perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || nullif(v_count, 0)::text || '}');
    if v_count is null or v_count = 0 then
        return;
    end if;

    select pg_catalog.count(spec.job_key), pg_catalog.count(spec.queue_name), bool_or(tasks.id is null)
    into v_key_count, v_queued_count, v_new_tasks
    from pg_catalog.unnest(specs) as spec
    left join "graphile_worker"._private_tasks as tasks on tasks.identifier = spec.identifier;

    -- Only names that are missing, so that known ones cost no identity values; and in order, so that two callers
    -- who create the same names wait for each other and do not deadlock.
    if v_new_tasks then
        insert into "graphile_worker"._private_tasks (identifier)
        select distinct spec.identifier
        from pg_catalog.unnest(specs) as spec
        where not exists (
            select from "graphile_worker"._private_tasks as tasks
            where tasks.identifier = spec.identifier
        )
        order by spec.identifier
        on conflict on constraint tasks_identifier_key do nothing;
    end if;

    if v_queued_count > 0 then
        insert into "graphile_worker"._private_job_queues (queue_name)
        select distinct spec.queue_name
        from pg_catalog.unnest(specs) as spec
        where spec.queue_name is not null
        and not exists (
            select from "graphile_worker"._private_job_queues as job_queues
            where job_queues.queue_name = spec.queue_name
        )
        order by spec.queue_name
        on conflict on constraint job_queues_queue_name_key do nothing;
    end if;

    if v_key_count = 0 then
        return query
        insert into "graphile_worker"._private_jobs as jobs
            (job_queue_id, task_id, payload, run_at, max_attempts, priority, flags)
        select
            job_queues.id,
            tasks.id,
            coalesce(spec.payload, '{}'::json),
            coalesce(spec.run_at, now()),
            coalesce(spec.max_attempts, 25::smallint),
            coalesce(spec.priority, 0::smallint),
            case
                when spec.flags is not null
                    then (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(spec.flags) as flag)
            end
        from pg_catalog.unnest(specs) with ordinality as spec
            (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, place)
        left join "graphile_worker"._private_tasks as tasks on tasks.identifier = spec.identifier
        left join "graphile_worker"._private_job_queues as job_queues
            on job_queues.queue_name = spec.queue_name
        order by spec.place
        returning jobs.*;
        return;
    end if;

    if v_key_count > (select pg_catalog.count(distinct spec.job_key) from pg_catalog.unnest(specs) as spec) then
        raise exception using
            errcode = 'cardinality_violation',
            message = 'add_jobs: the same job_key is given twice in one call',
            hint = 'Keep only the last spec of each job_key.';
    end if;

    -- A session keeps its plans. One made while the table was empty would go on to read the whole of it after a
    -- burst of new jobs, until the next analyze; so only plans with an index are made from here on.
    v_seqscan := pg_catalog.current_setting('enable_seqscan');
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);

    -- In the order of the keys each spec finds its key free, or waits for whoever holds the job that has it and
    -- then judges its final state: a waiting job takes the new values; any other (running, or out of attempts)
    -- gives up its key, which is ours then, and the next round adds a job for it. No condition lets a spec fall
    -- through. Whoever adds several keys takes them in this order, so two such callers wait but do not deadlock.
    loop
        with added as (
            insert into "graphile_worker"._private_jobs as jobs
                (job_queue_id, task_id, payload, run_at, max_attempts, key, priority, flags)
            select
                job_queues.id,
                tasks.id,
                coalesce(spec.payload, '{}'::json),
                coalesce(spec.run_at, now()),
                coalesce(spec.max_attempts, 25::smallint),
                spec.job_key,
                coalesce(spec.priority, 0::smallint),
                case
                    when spec.flags is not null
                        then (select pg_catalog.jsonb_object_agg(flag, true) from pg_catalog.unnest(spec.flags) as flag)
                end
            from pg_catalog.unnest(v_todo) with ordinality as spec
                (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, place)
            left join "graphile_worker"._private_tasks as tasks on tasks.identifier = spec.identifier
            left join "graphile_worker"._private_job_queues as job_queues
                on job_queues.queue_name = spec.queue_name
            order by spec.job_key, spec.place
            on conflict on constraint jobs_key_key1 do update set
                key = case when jobs.is_available then jobs.key end,
                job_queue_id = case when jobs.is_available then excluded.job_queue_id else jobs.job_queue_id end,
                task_id = case when jobs.is_available then excluded.task_id else jobs.task_id end,
                payload = case
                    when not jobs.is_available then jobs.payload
                    when json_typeof(jobs.payload) = 'array' and json_typeof(excluded.payload) = 'array'
                        then (jobs.payload::jsonb || excluded.payload::jsonb)::json
                    else excluded.payload
                end,
                run_at = case
                    when not jobs.is_available then jobs.run_at
                    when job_key_preserve_run_at and jobs.attempts = 0 then jobs.run_at
                    else excluded.run_at
                end,
                priority = case when jobs.is_available then excluded.priority else jobs.priority end,
                max_attempts = case when jobs.is_available then excluded.max_attempts else jobs.max_attempts end,
                flags = case when jobs.is_available then excluded.flags else jobs.flags end,
                attempts = case
                    when jobs.is_available then 0
                    -- A batch that runs is joined and not replaced: it may retry what is left of it (see add_job).
                    when jobs.locked_at is not null and json_typeof(jobs.payload) = 'array'
                        and json_typeof(excluded.payload) = 'array' then jobs.attempts
                    else jobs.max_attempts
                end,
                last_error = case when not jobs.is_available then jobs.last_error end,
                revision = case when jobs.is_available then jobs.revision + 1 else jobs.revision end,
                -- That a running job gave up its key is seen by a time after its lock, however old this transaction is.
                updated_at = case
                    when jobs.is_available then now()
                    when jobs.locked_at is not null and json_typeof(jobs.payload) = 'array'
                        and json_typeof(excluded.payload) = 'array' then jobs.updated_at
                    else clock_timestamp()
                end
            returning jobs.id, jobs.key, jobs.is_available
        )
        -- Specs without a key came last, in their own order, so the order of their ids tells which is which.
        select
            count(*) filter (where not added.is_available),
            pg_catalog.array_agg(added.id order by added.id) filter (where added.key is null and added.is_available)
        into v_cut_off, v_new_ids
        from added;

        v_unkeyed_ids := coalesce(v_unkeyed_ids, v_new_ids);
        exit when v_cut_off = 0;

        v_todo := array(
            select spec
            from pg_catalog.unnest(v_todo) as spec
            where spec.job_key is not null
            and (
                select jobs.id from "graphile_worker"._private_jobs as jobs where jobs.key = spec.job_key
            ) is null
        );
    end loop;

    return query
    select jobs.*
    from (
        select
            spec.job_key,
            v_unkeyed_ids[row_number() over (partition by spec.job_key is null order by spec.place)] as unkeyed_id,
            spec.place
        from pg_catalog.unnest(specs) with ordinality as spec
            (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, place)
    ) as spec
    cross join lateral (
        select jobs.*
        from "graphile_worker"._private_jobs as jobs
        where jobs.key = spec.job_key
        union all
        select jobs.*
        from "graphile_worker"._private_jobs as jobs
        where spec.job_key is null and jobs.id = spec.unkeyed_id
    ) as jobs
    order by spec.place;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
end;
$body$;

-- remove_job(job_key): delete the job that has the key, or detach a running one from its key and its retries.
--
-- Returns the row as it was deleted or as it is now; all columns null when no job has the key.
-- The row is locked before it is checked, so that the job cannot start or end in between.

create or replace function "graphile_worker".remove_job(job_key text)
returns "graphile_worker"._private_jobs
language plpgsql
strict
as $body$
declare
    v_job "graphile_worker"._private_jobs;
    v_seqscan text := pg_catalog.current_setting('enable_seqscan');
    v_setting text;
begin
    -- Only plans with an index: one made while the table was empty would be kept and, after a burst of new jobs,
    -- read the whole table.
    v_setting := pg_catalog.set_config('enable_seqscan', 'off', true);
    select * into v_job
    from "graphile_worker"._private_jobs as jobs
    where jobs.key = remove_job.job_key
    for update;

    if v_job.locked_at is null or v_job.locked_at < now() - interval '4 hours' then
        delete from "graphile_worker"._private_jobs as jobs where jobs.id = v_job.id;
        if found then
            perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":-1}');
        end if;
    else
        -- That it gave up its key is seen by a time after its lock, however old this transaction is.
        update "graphile_worker"._private_jobs as jobs
        set key = null, attempts = jobs.max_attempts, updated_at = clock_timestamp()
        where jobs.id = v_job.id
        returning jobs.* into v_job;
    end if;

    v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
    return v_job;
end;
$body$;

insert into "graphile_worker"._private_py_migrations (id, name)
values (28, 'safe_settings')
on conflict (id) do nothing;

alter table "graphile_worker"._private_py_workers add column if not exists flag_rules jsonb;

create or replace function "graphile_worker"._private_py_get_limited_jobs_by_flags(
    pool_id text,
    task_ids text, -- an array literal such as {1,2}
    wanted integer,
    flag_rules text[], -- three array literals: see the part flag_rules@routed
    worker_time timestamptz, -- or null for the server's
    lowest smallint[], -- ranges of priorities to read, as for get_jobs_above_watermarks; or null
    highest smallint[],
    since double precision[],
    limit_names text[],
    is_wide boolean -- whether there are wide queues; see get_jobs for them
)
returns table (
    id bigint, payload text, priority smallint, run_at double precision, attempts smallint, max_attempts smallint,
    last_error text, created_at double precision, updated_at double precision, key text, locked_at double precision,
    revision integer, flags text, task_id integer, job_queue_id integer
)
language plpgsql
as $body$
-- Its body, in own_objects/limits.sql, and with rules for flags in own_objects/limits@routed.sql.
#variable_conflict use_column
declare
    longest_delay constant double precision := 0.2; -- seconds from the lock of a prefetched job to its start
    limit_count integer := pg_catalog.cardinality($9);
    locked integer;
    moment timestamptz;
    rule record;
    smaller_burst double precision;
    tokens_of double precision[]; -- of each limit, in the order of names
    free_of integer[];
    nth integer := 0;
    held integer;
    asked integer := $3;
    room integer := $3;
    taken integer := 0;
    wait double precision;
    is_full boolean := false;
    is_counted boolean := false;
    may_prefetch boolean := true;
    tells_others boolean := false;
    queues_may_be_next boolean;
    places tid[];
    queue_ids integer[];
    moved jsonb; -- new queues by ctid
begin
    -- One fetch at a time. A pool that finds another at it comes back soon: waiting here would hold up the fetches of
    -- its other lanes, and those of every pool if one session hangs.
    perform from "graphile_worker"._private_py_limits
    where name = any ($9) order by name for update skip locked;
    get diagnostics locked = row_count;
    if locked < limit_count then
        select pg_catalog.json_build_object(
            case when count(*)::integer < limit_count then 'is_missing' else 'is_busy' end, true
        )
        into payload
        from "graphile_worker"._private_py_limits where name = any ($9);
        return next;
        return;
    end if;

    moment := clock_timestamp();
    for rule in
        select name, max_running, rate, burst, tokens, refilled_at
        from "graphile_worker"._private_py_limits where name = any ($9) order by name
    loop
        nth := nth + 1;
        if rule.max_running is not null then
            -- What ended, or was taken from its pool, does not count: the lock of the job is the truth.
            delete from "graphile_worker"._private_py_limit_holds hold
            where hold.limit_name = rule.name and not exists (
                select from "graphile_worker"._private_jobs job
                where job.id = hold.job_id and job.locked_by = hold.pool_id
            );
            select count(*)::integer into held
            from "graphile_worker"._private_py_limit_holds hold where hold.limit_name = rule.name;
            free_of[nth] := rule.max_running - held;
            room := least(room, free_of[nth]);
            is_counted := true;
        end if;
        if rule.rate is not null then
            -- A prefetched job starts later than its token was taken, when further tokens may have come. The bucket is
            -- smaller by what comes in that time, or nothing is prefetched.
            smaller_burst := rule.burst - rule.rate * longest_delay;
            if rule.rate * longest_delay >= 1::double precision
                and smaller_burst >= rule.burst / 2::double precision
            then
                rule.burst := smaller_burst;
            else
                may_prefetch := false;
            end if;
            tokens_of[nth] := least(
                rule.burst,
                rule.tokens + rule.rate
                * greatest(0::double precision, date_part('epoch', moment - rule.refilled_at))
            );
            room := least(room, floor(tokens_of[nth])::integer);
        end if;
    end loop;

    room := greatest(room, 0);
    if room > 0 then
        $3 := room;
        if not $10 then
            with recursive
-- Whether a job of a named queue may be next: one of the queues with waiting jobs is free, or there are too many to check.
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
            select may_be_next into queues_may_be_next from queues;
        end if;
        if $10 and $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: `queued` for queues that may run several jobs
-- at once. A job of a queue, its home, is moved to the row whose lock it takes: the home's own, or a free track's.
--
-- Jobs are considered as `queued` considers them. Tracks that are closed take no job, but their jobs are those of the home.
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
-- The distinct priorities of waiting jobs of named queues, in ascending order, by one index probe each; null at the end.
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
    -- Part of `examined`: the jobs of one `queue_priority`, up to the cutoff.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- The jobs of each home, the first ones first, in arrays: a join of jobs and free rows would compare each with each.
home as materialized (
  select
    home_id as id, min(priority) as priority, min(run_at) as run_at,
    pg_catalog.array_agg(place order by priority, run_at) as places,
    pg_catalog.array_agg(job_queue_id order by priority, run_at) as queues,
    pg_catalog.array_agg(priority order by priority, run_at) as priorities,
    pg_catalog.array_agg(run_at order by priority, run_at) as times
  from (
    select examined.*, coalesce(track.home_id, examined.job_queue_id) as home_id
    from examined
    left join "graphile_worker"._private_py_tracks track on track.queue_id = examined.job_queue_id
  ) examined
  group by home_id
),
queued as materialized (
  select
    job.place, member.id as job_queue_id, home.queues[member.turn] as old_queue_id,
    home.priorities[member.turn] as priority, home.times[member.turn] as run_at
  from (select * from home order by priority, run_at) home
  cross join lateral (
    select locked.id, (row_number() over ())::integer as turn
    from (
      select queue.id from "graphile_worker"._private_job_queues queue
      where queue.is_available and queue.id = any (
        array(
          select home.id
          union all
          select track.queue_id from "graphile_worker"._private_py_tracks track
          where track.home_id = home.id and not track.is_closed
        )
      )
      limit pg_catalog.cardinality(home.places)
      for update skip locked
    ) locked
  ) member
  cross join lateral (
    -- The turn makes this run after the lock of the row; see `queued`.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = home.places[member.turn] and job.job_queue_id = home.queues[member.turn]
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = home.places[member.turn] -- otherwise it was changed by now and cannot be taken
  limit $3
),
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
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
-- Of each other home with a free row, the first job.
other_head as materialized (
  select distinct on (other.home_id) next.place, other.id as queue_id, other.home_id, next.priority, next.run_at
  from (
    select other_queue.id, coalesce(track.home_id, other_queue.id) as home_id
    from (
      select id from other_queue
      limit (
        select case
          when exists (
            select from home
            join "graphile_worker"._private_job_queues queue on queue.id = home.id and queue.is_available
          ) then 2 * $3 + 40
        end
      )
    ) other_queue
    left join "graphile_worker"._private_py_tracks track on track.queue_id = other_queue.id
    where other_queue.id is not null
  ) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
  ) free
  cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other.id]) -- see write_outcomes
      -- The end of a look into one queue: its first job that is due and that this worker can run.
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other.home_id not in (select id from home)
  order by other.home_id, next.priority, next.run_at
),
other_queued as materialized (
  select job.place, queue.id as job_queue_id, other.queue_id as old_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = other.queue_id and queue.id is not null
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id, old_queue_id from (
    select place, job_queue_id, job_queue_id as old_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;
        elsif $10 then
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks while there are wide queues: `queued` for queues that may run several jobs
-- at once. A job of a queue, its home, is moved to the row whose lock it takes: the home's own, or a free track's.
--
-- Jobs are considered as `queued` considers them. Tracks that are closed take no job, but their jobs are those of the home.
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
-- The distinct priorities of waiting jobs of named queues, in ascending order, by one index probe each; null at the end.
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
    -- Part of `examined`: the jobs of one `queue_priority`, up to the cutoff.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- The jobs of each home, the first ones first, in arrays: a join of jobs and free rows would compare each with each.
home as materialized (
  select
    home_id as id, min(priority) as priority, min(run_at) as run_at,
    pg_catalog.array_agg(place order by priority, run_at) as places,
    pg_catalog.array_agg(job_queue_id order by priority, run_at) as queues,
    pg_catalog.array_agg(priority order by priority, run_at) as priorities,
    pg_catalog.array_agg(run_at order by priority, run_at) as times
  from (
    select examined.*, coalesce(track.home_id, examined.job_queue_id) as home_id
    from examined
    left join "graphile_worker"._private_py_tracks track on track.queue_id = examined.job_queue_id
  ) examined
  group by home_id
),
queued as materialized (
  select
    job.place, member.id as job_queue_id, home.queues[member.turn] as old_queue_id,
    home.priorities[member.turn] as priority, home.times[member.turn] as run_at
  from (select * from home order by priority, run_at) home
  cross join lateral (
    select locked.id, (row_number() over ())::integer as turn
    from (
      select queue.id from "graphile_worker"._private_job_queues queue
      where queue.is_available and queue.id = any (
        array(
          select home.id
          union all
          select track.queue_id from "graphile_worker"._private_py_tracks track
          where track.home_id = home.id and not track.is_closed
        )
      )
      limit pg_catalog.cardinality(home.places)
      for update skip locked
    ) locked
  ) member
  cross join lateral (
    -- The turn makes this run after the lock of the row; see `queued`.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = home.places[member.turn] and job.job_queue_id = home.queues[member.turn]
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = home.places[member.turn] -- otherwise it was changed by now and cannot be taken
  limit $3
),
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
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
-- Of each other home with a free row, the first job.
other_head as materialized (
  select distinct on (other.home_id) next.place, other.id as queue_id, other.home_id, next.priority, next.run_at
  from (
    select other_queue.id, coalesce(track.home_id, other_queue.id) as home_id
    from (
      select id from other_queue
      limit (
        select case
          when exists (
            select from home
            join "graphile_worker"._private_job_queues queue on queue.id = home.id and queue.is_available
          ) then 2 * $3 + 40
        end
      )
    ) other_queue
    left join "graphile_worker"._private_py_tracks track on track.queue_id = other_queue.id
    where other_queue.id is not null
  ) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
  ) free
  cross join lateral (
    select job.ctid as place, job.priority, job.run_at
    from "graphile_worker"._private_jobs job
    where job.is_available and job.job_queue_id = any (array[other.id]) -- see write_outcomes
      -- The end of a look into one queue: its first job that is due and that this worker can run.
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other.home_id not in (select id from home)
  order by other.home_id, next.priority, next.run_at
),
other_queued as materialized (
  select job.place, queue.id as job_queue_id, other.queue_id as old_queue_id, other.priority, other.run_at
  from (select * from other_head order by priority, run_at) other
  cross join lateral (
    select queue.id from "graphile_worker"._private_job_queues queue
    where queue.is_available and queue.id = any (
      array(
        select other.home_id
        union all
        select track.queue_id from "graphile_worker"._private_py_tracks track
        where track.home_id = other.home_id and not track.is_closed
      )
    )
    limit 1
    for update skip locked
  ) queue
  cross join lateral (
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = other.place and job.job_queue_id = other.queue_id and queue.id is not null
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = other.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
chosen as materialized (
  select place, job_queue_id, old_queue_id from (
    select place, job_queue_id, job_queue_id as old_queue_id, priority, run_at from plain
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from queued
    union all
    select place, job_queue_id, old_queue_id, priority, run_at from other_queued
  ) candidate
  order by priority, run_at
  limit $3
)
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;
        elsif queues_may_be_next and $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks: finds the next job of each named queue, and chooses the first of these
-- and of the jobs of `plain`. `take_chosen` takes them.
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
-- The distinct priorities of waiting jobs of named queues, in ascending order, by one index probe each; null at the end.
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
-- A bounded number of jobs of named queues in run order ...
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from (
    select candidate.priority from queue_priority candidate
    where
true -- any priority
  ) queue_priority cross join lateral (
    -- Part of `examined`: the jobs of one `queue_priority`, up to the cutoff.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- ... of which the first of each queue is taken, if the rows of the queue and the job can be locked without waiting.
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
    -- The queue's id makes this run after the lock of the queue: jobs of a queue that another pool has locked must not be
    -- locked even briefly, or that pool would skip them when it continues the queue.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
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
      -- The end of a look into one queue: its first job that is due and that this worker can run.
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (
    select * from other_head candidate
    where
true -- any priority
    order by priority, run_at
  ) other
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
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null)
            into places, queue_ids;
        elsif queues_may_be_next then
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
-- Part of get_jobs and get_jobs_above_watermarks: finds the next job of each named queue, and chooses the first of these
-- and of the jobs of `plain`. `take_chosen` takes them.
-- If `plain` has enough jobs, later jobs of queues are not read. A large fetch may stop at a quarter of its limit: locking
-- a queue with its job takes ten times as long, and the first jobs would wait for it.
cutoff as materialized (
  select priority, run_at from plain
  where (select count(*) from plain) >= case when $3 < 100 then $3 else $3 / 4 end
  order by priority desc, run_at desc
  limit 1
),
-- The distinct priorities of waiting jobs of named queues, in ascending order, by one index probe each; null at the end.
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
-- A bounded number of jobs of named queues in run order ...
examined as materialized (
  select found.place, found.job_queue_id, found.priority, found.run_at
  from (
    select candidate.priority from queue_priority candidate
    where
true -- any priority
  ) queue_priority cross join lateral (
    -- Part of `examined`: the jobs of one `queue_priority`, up to the cutoff.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
    order by job.run_at
    limit 2 * $3 + 40
  ) found
  limit 2 * $3 + 40
),
-- ... of which the first of each queue is taken, if the rows of the queue and the job can be locked without waiting.
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
    -- The queue's id makes this run after the lock of the queue: jobs of a queue that another pool has locked must not be
    -- locked even briefly, or that pool would skip them when it continues the queue.
    select job.ctid as place from "graphile_worker"._private_jobs job
    where job.ctid = head.place and job.job_queue_id = queue.id
      and job.is_available and job.run_at <= coalesce($5::timestamptz, now())
    for update skip locked
  ) job
  where job.place = head.place -- otherwise it was changed by now and cannot be taken
  limit $3
),
-- If none could be taken, walk from queue to queue instead. If all examined queues are busy, walk over all of them, since
-- the next job may be anywhere: the cost is the number of queues. If other workers were faster, only the first few.
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
      -- The end of a look into one queue: its first job that is due and that this worker can run.
      and job.run_at <= coalesce($5::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
    order by job.job_queue_id, job.priority, job.run_at
    limit 1
  ) next
  where other_queue.id not in (select job_queue_id from head)
),
other_queued as materialized (
  select other.place, other.job_queue_id, other.priority, other.run_at
  from (
    select * from other_head candidate
    where
true -- any priority
    order by priority, run_at
  ) other
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
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null)
            into places, queue_ids;
        elsif $6 is null then
            with recursive
-- Part of get_jobs and get_plain_jobs: locks the next jobs without a queue.
--
-- Scheduled jobs come before ready ones of the next priority in the index, and there may be a million of them. So this
-- walks over the distinct priorities and reads only the due jobs of each.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
other (transactions) as materialized (
  select array(
    select (number % 4294967296)::text::xid from txid_snapshot_xip(txid_current_snapshot()) as number
  )
),
-- The distinct priorities of waiting jobs without a queue, in ascending order, by one index probe each; null at the end.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
      and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
    order by job.run_at
    limit $3::integer
    for update skip locked
  ) found
  limit $3
),
            nothing as (select)
            select array(select place from plain) into places;
        else
            with recursive
-- Part of get_jobs_above_watermarks and get_plain_jobs_above_watermarks: locks the next jobs without a queue.
-- Part of every fetch: the tasks that it may take, and the transactions whose locked rows it skips.
-- The ids are one text such as {1,2}: the driver needs ten times as long to send an array of ten thousand numbers.
task (ids) as materialized (select $2::text::integer[]),
-- Other fetches in flight. Rows that they have locked are skipped by their header: trying the lock, as `skip locked`
-- does, takes five times as long, and there are thousands of them.
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
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
  -- The same for a worker with further rules: one of the accepted flags, and no flag that is not in the allowlist. Those that
  -- begin with py: are notes about a job, and in every allowlist. $4 text[]: three array literals, or null in place of one
  -- without a rule: the forbidden flags, the accepted ones, and the allowlist. Flags that are no object are in no list.
  and (
    ($4::text[])[1] is null or job.flags is null or not job.flags ?| (select ($4::text[])[1]::text[])
  )
  and (($4::text[])[2] is null or job.flags ?| (select ($4::text[])[2]::text[]))
  and (
    ($4::text[])[3] is null or job.flags is null
    or case
      when pg_catalog.jsonb_typeof(job.flags) = 'object'::text
      then not (job.flags - (select ($4::text[])[3]::text[])) @? '$.keyvalue() ? (!(@.key starts with "py:"))'::jsonpath
      else true
    end
  )
        and (job.xmax = 0 or job.xmax <> all ((select transactions from other)::xid[]))
      order by job.priority, job.run_at
      limit $3::integer
      for update skip locked
    ) gap
  ) found
  limit $3
),
            nothing as (select)
            select array(select place from plain) into places;
        end if;
        taken := pg_catalog.cardinality(places);
    end if;

    nth := 0;
    for rule in
        select name, max_running, rate, refilled_at, is_awaited
        from "graphile_worker"._private_py_limits where name = any ($9) order by name
    loop
        nth := nth + 1;
        if rule.rate is not null then
            tokens_of[nth] := tokens_of[nth] - taken::double precision;
            if tokens_of[nth] < 1::double precision then
                wait := greatest(wait, (1::double precision - tokens_of[nth]) / rule.rate);
            end if;
        end if;
        if rule.max_running is not null then
            free_of[nth] := free_of[nth] - taken;
            is_full := is_full or free_of[nth] <= 0;
        end if;
        if rule.is_awaited and (rule.max_running is null or free_of[nth] > 0) then
            tells_others := true;
            update "graphile_worker"._private_py_limits set is_awaited = false where name = rule.name;
        elsif free_of[nth] <= 0 and taken < asked and not rule.is_awaited then
            update "graphile_worker"._private_py_limits set is_awaited = true where name = rule.name;
        end if;
        -- A clock that was set back, as by a failover, would otherwise refill nothing until it catches up.
        if rule.rate is not null and (taken > 0 or rule.refilled_at > moment) then
            update "graphile_worker"._private_py_limits
            set tokens = tokens_of[nth], refilled_at = moment where name = rule.name;
        end if;
    end loop;
    if tells_others then
        perform pg_notify('worker:py', '{"limits":1}');
    end if;

    if taken > 0 then
        if is_counted then
            insert into "graphile_worker"._private_py_limit_holds as hold (limit_name, job_id, pool_id)
            select limits.name, job.id, $1
            from "graphile_worker"._private_py_limits limits
            cross join "graphile_worker"._private_jobs job
            where limits.name = any ($9) and limits.max_running is not null and job.ctid = any (places)
            on conflict on constraint _private_py_limit_holds_pkey do update set pool_id = excluded.pool_id;
        end if;
        if pg_catalog.cardinality(queue_ids) > 0 then
            update "graphile_worker"._private_job_queues queue
            set locked_by = $1, locked_at = coalesce($5, now())
            where queue.id = any (queue_ids);
        end if;
        return query
        update "graphile_worker"._private_jobs job
        set
            attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5, now()),
            job_queue_id = coalesce((moved ->> job.ctid::text)::integer, job.job_queue_id)
        where job.ctid = any (places)
        returning
  -- The columns of a fetched job, in the order of Job's fields. As few as possible, for there are tens of thousands per
  -- second: the worker knows the pool's id and the task's identifier.
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
        ;
    end if;
    payload := pg_catalog.json_build_object(
        'room', room, 'wait', wait, 'is_full', is_full, 'is_counted', is_counted, 'may_prefetch', may_prefetch
    );
    return next;
end;
$body$;

insert into "graphile_worker"._private_py_migrations (id, name)
values (29, 'flag_rules')
on conflict (id) do nothing;
