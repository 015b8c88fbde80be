-- Limits: how many jobs of some tasks Python workers run at once, and how many they start in a period.
--
-- The fetch function includes parts of other fetches. If one of them changes, this file needs a new number;
-- tests/migrations/test_mended_objects.py notices.

-- The bounds come from the code, written by the worker that started last, and from operators. Those of operators win.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_limits (
    name text not null,
    code_concurrency integer,
    code_starts double precision, -- this many starts ...
    code_period double precision, -- ... in a period of this many seconds
    code_burst double precision,
    tasks text[] not null default '{}', -- identifiers of the tasks that have this limit
    started_at timestamptz not null default now(), -- when a worker last brought these bounds
    set_concurrency integer,
    set_starts double precision,
    set_period double precision,
    set_burst double precision,
    set_at timestamptz,
    -- What is in force.
    max_running integer generated always as (coalesce(set_concurrency, code_concurrency)) stored,
    rate double precision -- starts per second
        generated always as (coalesce(set_starts / set_period, code_starts / code_period)) stored,
    burst double precision -- starts at once after a rest; half a second's worth if it is not given
        generated always as (
            coalesce(
                set_burst, code_burst, greatest(
                    1::double precision,
                    ceil(coalesce(set_starts / set_period, code_starts / code_period) * 0.5::double precision)
                )
            )
        ) stored,
    -- Jobs that may start now, as of refilled_at. A new limit may use its whole burst.
    tokens double precision not null default 'infinity',
    refilled_at timestamptz not null default clock_timestamp(),
    is_awaited boolean not null default false, -- a pool found no room and wants to be notified
    constraint _private_py_limits_pkey primary key (name)
);

-- Which jobs use a limit: a row has the jobs of one fetch. A job counts only while the pool has it locked, or while the transaction
-- of its held batch is open, so nothing has to be released: not when a job ends, not when its worker dies, not when another worker
-- recovers it.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds (
    limit_name text not null,
    job_id bigint not null, -- the transaction of the fetch, as a number below zero; in rows without job_ids the only job
    pool_id text not null,
    constraint _private_py_limit_holds_pkey primary key (limit_name, job_id)
);

alter table :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds
add column if not exists job_ids bigint[]; -- null in rows from before limits_by_fetch

-- To compress the ids of a large fetch, which soon are gone, took the server longer than all else that the row costs.
alter table :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds
alter column job_ids set storage external;

-- Locks the next jobs of limited tasks, as many as their limits leave room for.
--
-- Returns the columns of each job, unordered, then one row without an id. Its payload is a JSON object:
--   room          how many jobs could be locked at most
--   bound         how many the limits allow while nothing runs; null if that is not limited
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
:include limited_jobs_function

-- Lets all jobs of a held batch use their limits, or none: these are all that it has locked, and none has started.
--
-- It must be committed while the transaction of the batch is open. From then on the jobs count until that has ended, and later
-- those that its end has locked for the pool.
--
-- Returns the state that the fetch returns, with `room` as large as the batch if it may run.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_admit_held_jobs(
    pool_id text,
    fetch_number bigint, -- txid_current() of the batch
    taken_ids bigint[],
    limit_names text[]
)
returns table (payload text)
language plpgsql
as $body$
#variable_conflict use_column
declare
:include limit_variables
    asked integer := pg_catalog.cardinality(taken_ids);
    room integer := pg_catalog.cardinality(taken_ids);
begin
:include limit_room
    if room >= asked then
        taken := asked;
    end if;
:include limit_use
    if taken > 0 then
:include limit_hold
    end if;
:include limit_state
end;
$body$;
