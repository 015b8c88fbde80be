"""On a schema whose functions are not ours: rows in any order, and keyed adds that get lost in a race.

The functions here have the shape of those that other installers bring: keys are released and jobs inserted
in two statements, so a worker that takes the keyed job in between makes the insert do nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from client.comparing import as_job
from graphile_worker.client import WorkerUtils
from graphile_worker.errors import JobNotAddedError
from graphile_worker.values.job import Job
from graphile_worker.values.spec import JobSpec

ADD_JOBS = """
create or replace function graphile_worker.add_jobs(
    specs graphile_worker.job_spec[], job_key_preserve_run_at boolean default false
) returns setof graphile_worker._private_jobs language plpgsql as $$
begin
    insert into graphile_worker._private_tasks (identifier)
        select distinct s.identifier from unnest(specs) s on conflict do nothing;
    insert into graphile_worker._private_job_queues (queue_name)
        select distinct s.queue_name from unnest(specs) s where s.queue_name is not null
        on conflict do nothing;
    update graphile_worker._private_jobs j set key = null, attempts = j.max_attempts, updated_at = now()
        from unnest(specs) s where j.key = s.job_key and not j.is_available;
    return query
        insert into graphile_worker._private_jobs as j
            (job_queue_id, task_id, payload, run_at, max_attempts, key, priority, flags)
        select q.id, t.id, coalesce(s.payload, '{}'), coalesce(s.run_at, now()), coalesce(s.max_attempts, 25),
            s.job_key, coalesce(s.priority, 0), (select jsonb_object_agg(f, true) from unnest(s.flags) f)
        from unnest(specs) with ordinality s
            (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, place)
        join graphile_worker._private_tasks t on t.identifier = s.identifier
        left join graphile_worker._private_job_queues q on q.queue_name = s.queue_name
        order by md5(s.place::text)
        on conflict (key) do update set
            payload = excluded.payload, task_id = excluded.task_id, run_at = excluded.run_at,
            revision = j.revision + 1, attempts = 0, updated_at = now()
        where j.locked_at is null
        returning j.*;
end $$;
"""
ADD_JOB = """
create or replace function graphile_worker.add_job(
    identifier text, payload json default null, queue_name text default null, run_at timestamptz default null,
    max_attempts integer default null, job_key text default null, priority integer default null,
    flags text[] default null, job_key_mode text default 'replace'
) returns graphile_worker._private_jobs language plpgsql as $$
declare
    v_job graphile_worker._private_jobs;
begin
    select * into v_job from graphile_worker.add_jobs(
        array[row(identifier, payload, queue_name, run_at, max_attempts::smallint, job_key,
            priority::smallint, flags)::graphile_worker.job_spec], job_key_mode = 'preserve_run_at');
    return v_job;
end $$;
"""
ALWAYS_LOST = """
create or replace function graphile_worker.add_jobs(
    specs graphile_worker.job_spec[], job_key_preserve_run_at boolean default false
) returns setof graphile_worker._private_jobs language sql
as 'select * from graphile_worker._private_jobs limit 0';
"""
LOST_TWICE_WITH_AN_ERROR = """
create sequence public.attempts;
alter function graphile_worker.add_job rename to real_add_job;
create function graphile_worker.add_job(
    identifier text, payload json default null, queue_name text default null, run_at timestamptz default null,
    max_attempts integer default null, job_key text default null, priority integer default null,
    flags text[] default null, job_key_mode text default 'replace'
) returns graphile_worker._private_jobs language plpgsql as $$
begin
    if nextval('public.attempts') <= 2 then
        raise exception 'no row' using errcode = 'GWNOR';
    end if;
    return graphile_worker.real_add_job(identifier, payload, queue_name, run_at, max_attempts, job_key,
        priority, flags, job_key_mode);
end $$;
"""


@pytest.fixture
async def foreign(connection: Any) -> None:
    """Puts functions of the other shape into the test's database."""
    await connection.execute(ADD_JOBS + ADD_JOB)


@pytest.fixture
async def worker(database_url: str) -> AsyncIterator[Any]:
    """A second session that plays the worker."""
    session = await asyncpg.connect(database_url)
    try:
        yield session
    finally:
        await session.close()


async def until_a_session_waits(connection: Any) -> None:
    """Returns as soon as a session of this database waits for a lock."""
    async with asyncio.timeout(60):
        waits = False
        while not waits:  # every query is a round trip, so this does not spin
            waits = await connection.fetchval(
                "select exists (select from pg_stat_activity where datname = current_database() "
                "and wait_event_type = 'Lock')"
            )


async def add_one(utils: WorkerUtils) -> Job:
    return await utils.add_job("job1", {"a": 2}, job_key="K")


async def add_with_others(utils: WorkerUtils) -> Job:
    specs = [JobSpec("job2", 0), JobSpec("job1", {"a": 2}, job_key="K"), JobSpec("job3", 3, job_key="L")]
    jobs = await utils.add_jobs(specs)
    assert [job.task_identifier for job in jobs] == ["job2", "job1", "job3"]
    assert [job.payload for job in jobs] == [0, {"a": 2}, 3]
    return jobs[1]


@pytest.mark.compat("EXT-15")
@pytest.mark.parametrize("add", [add_one, add_with_others])
@pytest.mark.parametrize("installed_by", ["us", "others"])
async def test_a_job_taken_while_its_key_is_added_again_does_not_swallow_the_new_one(
    utils: WorkerUtils,
    connection: Any,
    worker: Any,
    add: Callable[[WorkerUtils], Awaitable[Job]],
    installed_by: str,
) -> None:
    if installed_by == "others":
        await connection.execute(ADD_JOBS + ADD_JOB)
    old = await utils.add_job("job1", {"a": 1}, job_key="K")
    taking = worker.transaction()
    await taking.start()
    await worker.execute(
        "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool', attempts = 1 "
        "where key = 'K'"
    )
    adding = asyncio.ensure_future(add(utils))
    try:
        await until_a_session_waits(connection)
        await taking.commit()
        new = await adding
    finally:
        adding.cancel()

    assert new.id != old.id
    assert (new.key, new.payload, new.locked_by) == ("K", {"a": 2}, None)
    details = await utils.jobs.get(old.id)
    assert details is not None
    assert (details.key, details.attempts, details.locked_by) == (None, 25, "pool")


@pytest.mark.usefixtures("foreign")
async def test_rows_come_back_in_order_although_the_function_mixes_them(utils: WorkerUtils) -> None:
    specs = [
        JobSpec(f"task_{number % 3}", number // 2, priority=number % 2, queue_name=f"q{number % 5}")
        for number in range(1200)
    ]
    jobs = await utils.add_jobs(specs)
    assert [job.task_identifier for job in jobs] == [spec.task_identifier for spec in specs]
    assert [(job.payload, job.priority) for job in jobs] == [(spec.payload, spec.priority) for spec in specs]
    assert len({job.id for job in jobs}) == 1200
    for job in jobs[:5]:
        details = await utils.jobs.get(job.id)
        assert details is not None
        assert as_job(details) == job


@pytest.mark.usefixtures("foreign")
async def test_rows_with_keys_flags_and_times_come_back_in_order_too(utils: WorkerUtils) -> None:
    specs = [
        JobSpec(
            "job1",
            {"same": True},
            job_key=f"key {number}" if number % 2 else None,
            flags=[f"flag {number % 4}"],
            run_at=timedelta(hours=number % 3),
            max_attempts=number % 5 + 1,
        )
        for number in range(60)
    ]
    jobs = await utils.add_jobs(specs)
    for spec, job in zip(specs, jobs, strict=True):
        assert (job.key, job.max_attempts) == (spec.job_key, spec.max_attempts)
        assert job.flags == dict.fromkeys(spec.flags or (), True)


@pytest.mark.usefixtures("foreign")
async def test_an_add_that_is_lost_every_time_ends_in_an_error(utils: WorkerUtils, connection: Any) -> None:
    await connection.execute(ALWAYS_LOST)
    with pytest.raises(JobNotAddedError, match="the job with key 'K' could not be added in 10 attempts"):
        await utils.add_job("job1", job_key="K")
    with pytest.raises(JobNotAddedError, match="the job with key 'K' could not be added in 10 attempts"):
        await utils.add_jobs([JobSpec("job1", job_key="K")])


@pytest.mark.usefixtures("foreign")
async def test_an_add_that_is_lost_with_an_error_is_tried_again(utils: WorkerUtils, connection: Any) -> None:
    await connection.execute(LOST_TWICE_WITH_AN_ERROR)
    job = await utils.add_job("job1", {"a": 1}, job_key="K")
    assert (job.key, job.payload) == ("K", {"a": 1})
    assert await connection.fetchval("select last_value from public.attempts") == 3


@pytest.mark.usefixtures("foreign")
async def test_inside_a_transaction_a_lost_add_says_to_run_it_again(
    utils: WorkerUtils, connection: Any
) -> None:
    await connection.execute(LOST_TWICE_WITH_AN_ERROR)
    with pytest.raises(JobNotAddedError, match="run the transaction again"):
        async with connection.transaction():
            await utils.add_job("job1", {"a": 1}, job_key="K", connection=connection)
