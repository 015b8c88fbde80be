-- The functions that keep limits: the fetch of limited jobs, and what lets a held batch have some.

-- part: limited_jobs_function
-- All but its name and its first parameters, in own_objects/limits.sql, and with rules for flags in own_objects/limits@routed.sql.
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
:include limit_variables
    asked integer := $3;
    room integer := $3;
    fetch_number bigint;
    taken_ids bigint[];
    queues_may_be_next boolean;
    places tid[];
    queue_ids integer[];
    moved jsonb; -- new queues by ctid
begin
:include limit_room
    if room > 0 then
        $3 := room;
        if not $10 then
            with recursive
-- Whether a job of a named queue may be next: one of the queues with waiting jobs is free, or there are too many to check.
:include waiting_queue
queues (may_be_next) as materialized (
  select pg_catalog.count(waiting.id) > 10 or coalesce(bool_or(queue.is_available), false)
  from (select id from waiting_queue limit 11) waiting
  left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = waiting.id
)
            select may_be_next into queues_may_be_next from queues;
        end if;
        if $10 and $6 is null then
            with recursive
:include plain
:include queued_wide
:include chosen_places
        elsif $10 then
            with recursive
:include plain_above_watermarks
:include queued_wide
:include chosen_places
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

:include limit_use
    if taken > 0 then
        fetch_number := txid_current();
        taken_ids := array(select job.id from :GRAPHILE_WORKER_SCHEMA._private_jobs job where job.ctid = any (places));
:include limit_hold
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
:include limit_state
end;
$body$;

-- part: chosen_places
-- Part of `limited_jobs`: what `queued_wide` has chosen.
            select
                array(select place from chosen), array(select job_queue_id from chosen where job_queue_id is not null),
                (
                    select pg_catalog.jsonb_object_agg(place::text, job_queue_id)
                    from chosen where job_queue_id <> old_queue_id
                )
            into places, queue_ids, moved;

-- part: limit_variables
-- Part of both functions: what `limit_room`, `limit_use` and `limit_state` need, beside `limit_names`, `asked` and `room`, which
-- both begin as how many jobs are wanted.
    longest_delay constant double precision := 0.2; -- seconds from the lock of a prefetched job to its start
    most_unchecked constant integer := 10000; -- jobs that may have ended, and count until it is known
    limit_count integer := pg_catalog.cardinality(limit_names);
    locked integer;
    moment timestamptz;
    rule record;
    smaller_burst double precision;
    tokens_of double precision[]; -- of each limit, in the order of names
    free_of integer[];
    nth integer := 0;
    held integer;
    bound integer;
    taken integer := 0;
    wait double precision;
    is_full boolean := false;
    is_counted boolean := false;
    may_prefetch boolean := true;
    tells_others boolean := false;

-- part: limit_room
-- Part of both functions: locks the limits, and sets `room` to how many jobs they leave room for.
    -- One fetch at a time. A pool that finds another at it comes back soon: waiting here would hold up the fetches of
    -- its other lanes, and those of every pool if one session hangs.
    perform from :GRAPHILE_WORKER_SCHEMA._private_py_limits
    where name = any (limit_names) order by name for update skip locked;
    get diagnostics locked = row_count;
    if locked < limit_count then
        select pg_catalog.json_build_object(
            case when count(*)::integer < limit_count then 'is_missing' else 'is_busy' end, true
        )
        into payload
        from :GRAPHILE_WORKER_SCHEMA._private_py_limits where name = any (limit_names);
        return next;
        return;
    end if;

    moment := clock_timestamp();
    for rule in
        select name, max_running, rate, burst, tokens, refilled_at
        from :GRAPHILE_WORKER_SCHEMA._private_py_limits where name = any (limit_names) order by name
    loop
        nth := nth + 1;
        if rule.max_running is not null then
            select coalesce(sum(coalesce(pg_catalog.cardinality(hold.job_ids), 1)), 0::bigint)::integer into held
            from :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds hold where hold.limit_name = rule.name;
            -- While there is room even if none of them has ended, their locks need not be looked at.
            if held + asked >= rule.max_running or held > most_unchecked then
                -- What ended, or was taken from its pool, does not count: the lock of the job is the truth. A job that its pool
                -- has locked again is in two rows and counts once. Rows become shorter by half at a time, which costs least.
                with hold as materialized (
                    select hold.job_id as number, pg_catalog.cardinality(hold.job_ids) as size, live.ids
                    from :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds hold
                    cross join lateral (
                        select case
                            when (
:include is_batch_open
                            ) then hold.job_ids
                            else array(
                                select job.id
                                from pg_catalog.unnest(coalesce(hold.job_ids, array[hold.job_id])) as used (id)
                                join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = any (array[used.id]) -- see write_outcomes
                                where job.locked_by = hold.pool_id
                            )
                        end as ids
                    ) live
                    where hold.limit_name = rule.name
                ),
                ended as (
                    delete from :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds hold
                    where hold.limit_name = rule.name
                        and hold.job_id = any (array(select number from hold where pg_catalog.cardinality(ids) = 0))
                ),
                shortened as (
                    update :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds hold
                    set job_ids = shorter.ids
                    from hold as shorter
                    where hold.limit_name = rule.name and hold.job_id = shorter.number
                        and pg_catalog.cardinality(shorter.ids) between 1 and shorter.size / 2
                )
                select pg_catalog.count(distinct used.id)::integer into held
                from hold cross join lateral pg_catalog.unnest(hold.ids) as used (id);
            end if;
            free_of[nth] := rule.max_running - held;
            room := least(room, free_of[nth]);
            bound := least(bound, rule.max_running);
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
            bound := least(bound, floor(rule.burst)::integer);
        end if;
    end loop;

    room := greatest(room, 0);

-- part: limit_use
-- Part of both functions: takes what `taken` jobs need from the limits, and tells other pools if some is left for them.
    nth := 0;
    for rule in
        select name, max_running, rate, refilled_at, is_awaited
        from :GRAPHILE_WORKER_SCHEMA._private_py_limits where name = any (limit_names) order by name
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

-- part: limit_hold
-- Part of both functions: notes that `taken_ids`, the jobs of the fetch with this number, use the limits.
        if is_counted then
            -- Two fetches in one transaction have the same number. So may a row of another pool where a dump was restored: its jobs
            -- have ended.
            insert into :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds as hold (limit_name, job_id, pool_id, job_ids)
            select limits.name, - fetch_number, $1, taken_ids
            from :GRAPHILE_WORKER_SCHEMA._private_py_limits limits
            where limits.name = any (limit_names) and limits.max_running is not null
            on conflict on constraint _private_py_limit_holds_pkey
            do update set
                pool_id = excluded.pool_id,
                job_ids = case
                    when hold.pool_id = excluded.pool_id then hold.job_ids operator(pg_catalog.||) excluded.job_ids
                    else excluded.job_ids
                end;
        end if;

-- part: limit_state
-- Part of both functions: the row that describes the limits.
    payload := pg_catalog.json_build_object(
        'room', room, 'bound', bound, 'wait', wait, 'is_full', is_full, 'is_counted', is_counted,
        'may_prefetch', may_prefetch
    );
    return next;

-- part: is_batch_open
-- Whether the transaction of a held batch, whose number its row has, is open as of this statement. The number of an ordinary
-- fetch is that of a transaction that has ended, and one from a restored dump may be above all that there were.
hold.job_id < 0::bigint
and - hold.job_id < txid_snapshot_xmax(txid_current_snapshot())
and not txid_visible_in_snapshot(- hold.job_id, txid_current_snapshot())
