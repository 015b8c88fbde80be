-- Functions whose earlier form called `current_setting('...')` by its name. Such a call, of one literal without a type, is a
-- conversion to a type of that name if there is one, so the checks of a domain `current_setting` that another role had
-- made in `public` were run with the rights of the caller. The texts of 0014 and 0025 stay as they were; every database
-- gets the safe functions by this number. Shared functions are replaced here, too: see database/migrations/own_functions.py.

-- Adds one job that is unique by its arguments, which its key stands for, unless there is one.
--
-- Unlike unsafe_dedupe, a job that has failed permanently does not count: it loses its key, and the new job takes its
-- place. Only the Python package calls it; the unique index on keys holds for jobs of every runtime.

create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_add_unique_job(
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
    out job :GRAPHILE_WORKER_SCHEMA._private_jobs,
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
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.key = new_key and jobs.is_available
        for update;
        exit when found;

        -- A running job is not locked: its worker must not wait for the caller. One that was cancelled does not count.
        if new_while = 'waiting or running' then
            select jobs.* into job
            from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
            where jobs.key = new_key and jobs.locked_at is not null
            and not exists (
                select from :GRAPHILE_WORKER_SCHEMA._private_py_cancels as cancels where cancels.job_id = jobs.id
            );
            exit when found;
        end if;

        -- Any other job loses its key and its remaining attempts, as in add_job.
        update :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        set key = null, attempts = jobs.max_attempts, updated_at = clock_timestamp()
        where jobs.key = new_key and not jobs.is_available
        and (
            new_while = 'waiting' or jobs.locked_at is null
            or exists (
                select from :GRAPHILE_WORKER_SCHEMA._private_py_cancels as cancels where cancels.job_id = jobs.id
            )
        );

        loop
            select tasks.id into v_task_id
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.identifier = new_task;
            exit when found;
            insert into :GRAPHILE_WORKER_SCHEMA._private_tasks (identifier)
            values (new_task)
            on conflict on constraint tasks_identifier_key do nothing;
        end loop;
        while new_queue is not null loop
            select job_queues.id into v_queue_id
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            where job_queues.queue_name = new_queue;
            exit when found;
            insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name)
            values (new_queue)
            on conflict on constraint job_queues_queue_name_key do nothing;
        end loop;

        insert into :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
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

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (28, 'safe_settings')
on conflict (id) do nothing;
