-- Wide queues: named queues that may run several jobs at once. Such a queue owns further rows of the shared table of
-- queues, its tracks, each an ordinary serial queue to every runtime. Jobs are added to the queue itself, its home; a
-- Python fetch moves a job to a free track as it locks it. So nothing is counted, and nothing can be counted wrongly.

-- Widths that were set by hand. They are kept by name, since an unused queue may be deleted and made again.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_queue_widths (
    queue_name text not null,
    width integer not null,
    constraint _private_py_queue_widths_pkey primary key (queue_name),
    constraint _private_py_queue_widths_check check (width between 1 and 1000)
);

create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_tracks (
    queue_id integer not null, -- its row in _private_job_queues, named like "tenant:7 [2]"
    home_id integer not null,
    is_closed boolean not null default false, -- takes no job any more; its row is held until its job has ended
    constraint _private_py_tracks_pkey primary key (queue_id)
);

-- Not if it exists: the statement would wait for all who write to the table.
do $body$
begin
    if pg_catalog.to_regclass($inner_body$:GRAPHILE_WORKER_SCHEMA._private_py_tracks_home_index$inner_body$::text) is null then
        create index _private_py_tracks_home_index on :GRAPHILE_WORKER_SCHEMA._private_py_tracks (home_id);
    end if;
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
