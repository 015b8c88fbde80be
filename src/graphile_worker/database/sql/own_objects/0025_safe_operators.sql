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
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_get_limited_jobs(
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
    perform from :GRAPHILE_WORKER_SCHEMA._private_py_limits
    where name = any ($9) order by name for update skip locked;
    get diagnostics locked = row_count;
    if locked < limit_count then
        select pg_catalog.json_build_object(
            case when count(*)::integer < limit_count then 'is_missing' else 'is_busy' end, true
        )
        into payload
        from :GRAPHILE_WORKER_SCHEMA._private_py_limits where name = any ($9);
        return next;
        return;
    end if;

    moment := clock_timestamp();
    for rule in
        select name, max_running, rate, burst, tokens, refilled_at
        from :GRAPHILE_WORKER_SCHEMA._private_py_limits where name = any ($9) order by name
    loop
        nth := nth + 1;
        if rule.max_running is not null then
            -- What ended, or was taken from its pool, does not count: the lock of the job is the truth.
            delete from :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds hold
            where hold.limit_name = rule.name and not exists (
                select from :GRAPHILE_WORKER_SCHEMA._private_jobs job
                where job.id = hold.job_id and job.locked_by = hold.pool_id
            );
            select count(*)::integer into held
            from :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds hold where hold.limit_name = rule.name;
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
:include queues
            select may_be_next into queues_may_be_next from queues;
        end if;
        if $10 and $6 is null then
            with recursive
:include plain
:include queued_wide
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;
        elsif $10 then
            with recursive
:include plain_above_watermarks
:include queued_wide
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;
        elsif queues_may_be_next and $6 is null then
            with recursive
:include plain
:include queued
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null)
            into places, queue_ids;
        elsif queues_may_be_next then
            with recursive
:include plain_above_watermarks
:include queued
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null)
            into places, queue_ids;
        elsif $6 is null then
            with recursive
:include plain
            nothing as (select)
            select array(select place from plain) into places;
        else
            with recursive
:include plain_above_watermarks
            nothing as (select)
            select array(select place from plain) into places;
        end if;
        taken := pg_catalog.cardinality(places);
    end if;

    nth := 0;
    for rule in
        select name, max_running, rate, refilled_at, is_awaited
        from :GRAPHILE_WORKER_SCHEMA._private_py_limits where name = any ($9) order by name
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
            update :GRAPHILE_WORKER_SCHEMA._private_py_limits set is_awaited = false where name = rule.name;
        elsif free_of[nth] <= 0 and taken < asked and not rule.is_awaited then
            update :GRAPHILE_WORKER_SCHEMA._private_py_limits set is_awaited = true where name = rule.name;
        end if;
        -- A clock that was set back, as by a failover, would otherwise refill nothing until it catches up.
        if rule.rate is not null and (taken > 0 or rule.refilled_at > moment) then
            update :GRAPHILE_WORKER_SCHEMA._private_py_limits
            set tokens = tokens_of[nth], refilled_at = moment where name = rule.name;
        end if;
    end loop;
    if tells_others then
        perform pg_notify('worker:py', '{"limits":1}');
    end if;

    if taken > 0 then
        if is_counted then
            insert into :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds as hold (limit_name, job_id, pool_id)
            select limits.name, job.id, $1
            from :GRAPHILE_WORKER_SCHEMA._private_py_limits limits
            cross join :GRAPHILE_WORKER_SCHEMA._private_jobs job
            where limits.name = any ($9) and limits.max_running is not null and job.ctid = any (places)
            on conflict on constraint _private_py_limit_holds_pkey do update set pool_id = excluded.pool_id;
        end if;
        if pg_catalog.cardinality(queue_ids) > 0 then
            update :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
            set locked_by = $1, locked_at = coalesce($5, now())
            where queue.id = any (queue_ids);
        end if;
        return query
        update :GRAPHILE_WORKER_SCHEMA._private_jobs job
        set
            attempts = job.attempts + 1, locked_by = $1, locked_at = coalesce($5, now()),
            job_queue_id = coalesce((moved ->> job.ctid::text)::integer, job.job_queue_id)
        where job.ctid = any (places)
        returning
:include taken_columns
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
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_set_tracks(
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
                    from :GRAPHILE_WORKER_SCHEMA._private_py_queue_widths as by_hand
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
                        from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
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
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
            where queue.id = wanted.id
            limit 1
        ) as home
        cross join lateral (
            select
                count(*) as entries,
                count(*) filter (
                    where exists (
                        select from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue where queue.id = track.queue_id
                    )
                ) as open
            from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
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
    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as home
    where home.id = any(v_homes)
    order by home.id
    for update;
    v_widths := array(
        select
            coalesce(
                (
                    select by_hand.width
                    from :GRAPHILE_WORKER_SCHEMA._private_py_queue_widths as by_hand
                    where by_hand.queue_name = (
                        select home.queue_name
                        from :GRAPHILE_WORKER_SCHEMA._private_job_queues as home
                        where home.id = wanted.id
                    )
                ),
                wanted.width
            )
        from unnest(v_homes, v_widths) with ordinality as wanted (id, width, place)
        order by wanted.place
    );

    -- Entries of tracks that were deleted, and closed tracks whose jobs have ended.
    delete from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
    where track.home_id = any(v_homes)
    and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue where queue.id = track.queue_id
    );
    v_idle := array(
        select track.queue_id
        from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
        where track.home_id = any(v_homes) and track.is_closed
    );
    if pg_catalog.cardinality(v_idle) > 0 then
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true); -- no index has all jobs of a queue
        v_idle := array(
            select idle.id from pg_catalog.unnest(v_idle) as idle (id)
            except
            select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs as job where job.job_queue_id = any(v_idle)
        );
        delete from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue where queue.id = any(v_idle);
        delete from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track where track.queue_id = any(v_idle);
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
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
            where queue.id = given.id
            limit 1
        ) as home
        cross join lateral (
            select
                (count(*) filter (where not track.is_closed))::integer as open, count(*)::integer as entries
            from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
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
                from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
                where track.queue_id = (
                    select queue.id
                    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
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
        insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue (queue_name, locked_by, locked_at)
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
        insert into :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track (queue_id, home_id)
        select made.id, ((select homes.ids from homes) ->> made.queue_name)::integer
        from made
        on conflict on constraint _private_py_tracks_pkey do update set home_id = excluded.home_id, is_closed = false
        returning track.queue_id, track.home_id
    ),
    held as (
        insert into :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds as hold (queue_id, until, reason, held_at)
        select known.queue_id, of_home.until, of_home.reason, of_home.held_at
        from known
        cross join lateral (
            select hold.until, hold.reason, hold.held_at
            from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds as hold
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
            from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
            where track.home_id = wanted.id and not track.is_closed
            order by
                (
                    select queue.locked_at
                    from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
                    where queue.id = track.queue_id
                ) nulls last,
                track.queue_id
            offset wanted.width - 1
        ) as surplus
    );
    if pg_catalog.cardinality(v_closing) > 0 then
        perform queue.id
        from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
        where queue.id = any(v_closing)
        order by queue.id
        for update;
        update :GRAPHILE_WORKER_SCHEMA._private_job_queues as queue
        set locked_by = 'py:hold', locked_at = '9999-01-01 00:00:00+00'
        where queue.id = any(v_closing);
        update :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
        set is_closed = true
        where track.queue_id = any(v_closing);
        delete from :GRAPHILE_WORKER_SCHEMA._private_py_queue_holds as hold where hold.queue_id = any(v_closing);
        v_setting := pg_catalog.set_config('enable_seqscan', v_seqscan, true);
        update :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        set job_queue_id = track.home_id
        from :GRAPHILE_WORKER_SCHEMA._private_py_tracks as track
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
alter function :GRAPHILE_WORKER_SCHEMA._private_py_add_partition(regclass, date) set search_path to pg_catalog, pg_temp;
alter function :GRAPHILE_WORKER_SCHEMA._private_py_drop_partitions(regclass, date) set search_path to pg_catalog, pg_temp;
alter function :GRAPHILE_WORKER_SCHEMA._private_py_ready_jobs(integer, text[]) set search_path to pg_catalog, pg_temp;
alter function :GRAPHILE_WORKER_SCHEMA._private_py_oldest_ready_age() set search_path to pg_catalog, pg_temp;
alter function :GRAPHILE_WORKER_SCHEMA._private_py_note_death() set search_path to pg_catalog, pg_temp;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (25, 'safe_operators')
on conflict (id) do nothing;
