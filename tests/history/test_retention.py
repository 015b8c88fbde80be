"""Partitions are made and dropped while workers write kept jobs at full speed."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import task
from graphile_worker.database.sql import load
from graphile_worker.history.upkeep import add_partitions, drop_expired, is_partition_missing
from graphile_worker.values.schema_name import SchemaName
from support.cases import looped
from support.working import PATIENCE, SCHEMA, Jobs, Workers, until

NAME = SchemaName()
HISTORY, ERRORS = f"{SCHEMA}._private_py_history", f"{SCHEMA}._private_py_errors"
DAY = 86_400.0
EXPIRES_ON = re.sub("--.*", "", load("parts/expires_on"))
UNFINISHED = (
    f"select count(*) from {SCHEMA}._private_jobs where attempts < max_attempts or locked_at is not null"
)


@task(keep=True)
async def kept(payload: Any) -> int:
    number: int = payload["n"]
    return number


@task(keep=True)
async def fail(payload: Any) -> None:
    raise ValueError("no")


async def ended(jobs: Jobs) -> list[int]:
    rows = await jobs.connection.fetch(f"select job_id from {HISTORY} order by job_id")
    return [row["job_id"] for row in rows]


async def until_finished(jobs: Jobs) -> None:
    """Until every job is gone or has failed permanently."""

    async def is_finished() -> bool:
        return not await jobs.connection.fetchval(UNFINISHED)

    await until(is_finished, every=0.02)


async def partitions(jobs: Jobs) -> list[str]:
    rows = await jobs.connection.fetch(
        "select inhrelid::regclass::text as name from pg_inherits "
        f"where inhparent in ('{HISTORY}'::regclass, '{ERRORS}'::regclass)"
    )
    return [row["name"] for row in rows]


async def test_expired_partitions_are_dropped_and_made_while_jobs_are_written(
    jobs: Jobs, workers: Workers, database_url: str
) -> None:
    count = 4_000
    over = asyncio.Event()
    dropped = 0

    async def retain() -> None:
        """Do all the time what maintenance does every few minutes; the day that expires is made again."""
        nonlocal dropped
        connection = await asyncpg.connect(database_url)
        try:
            while not over.is_set():
                for table in (HISTORY, ERRORS):
                    await connection.execute(
                        f"select {SCHEMA}._private_py_add_partition('{table}'::regclass, "
                        "(now() at time zone 'UTC')::date - 2)"
                    )
                with suppress(asyncpg.LockNotAvailableError):
                    dropped += await drop_expired(connection, NAME)
        finally:
            await connection.close(timeout=PATIENCE)

    added = await jobs.add_many("kept", count)
    failing = await jobs.add_many("fail", 50, max_attempts=1)
    retaining = asyncio.ensure_future(retain())
    try:
        for _ in range(2):
            await workers.start([kept, fail], concurrency=10)
        await until_finished(jobs)
    finally:
        over.set()
        await retaining
    assert dropped > 0
    assert await ended(jobs) == sorted([*added, *failing])


async def test_a_drop_that_waits_for_a_reader_holds_up_writes_no_longer_than_its_lock_timeout(
    jobs: Jobs, workers: Workers, database_url: str
) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}._private_py_add_partition('{HISTORY}'::regclass, current_date - 9)"
    )
    reader, dropper = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    over = asyncio.Event()
    waits: list[float] = []

    async def drop() -> None:
        while not over.is_set():
            began = time.monotonic()
            with pytest.raises(asyncpg.LockNotAvailableError):
                await drop_expired(dropper, NAME)
            waits.append(time.monotonic() - began)

    try:
        async with reader.transaction():
            await reader.fetch(f"select * from {HISTORY}")
            dropping = asyncio.ensure_future(drop())
            added = await jobs.add_many("kept", 500)
            await workers.once([kept], concurrency=10)  # while the reader goes on
            over.set()
            await dropping
        assert await ended(jobs) == added
        assert waits
    finally:
        over.set()
        await reader.close(timeout=PATIENCE)
        await dropper.close(timeout=PATIENCE)


async def test_workers_that_miss_the_same_partitions_at_once_make_them_once(
    jobs: Jobs, workers: Workers
) -> None:
    started = [await workers.start([kept, fail], concurrency=4) for _ in range(4)]
    assert len(started) == 4
    ids: list[int] = []
    for _ in range(5):
        for name in await partitions(jobs):
            await jobs.connection.execute(f"drop table {name}")
        rows = await jobs.connection.fetch(
            "select job.id from generate_series(1, 100) n, "
            f"{SCHEMA}.add_job('kept', json_build_object('n', n), "
            "flags => array['py:keep=' || (n % 40) * 86400]) job"
        )
        ids = [row["id"] for row in rows]
        ids.append(await jobs.add("fail", max_attempts=1))
        await until_finished(jobs)
    assert await ended(jobs) == sorted(ids)
    names = await partitions(jobs)
    assert len(names) == len(set(names))


async def test_many_sessions_make_many_partitions_without_a_deadlock(database_url: str, jobs: Jobs) -> None:
    connections = [await asyncpg.connect(database_url) for _ in range(6)]
    try:
        async with asyncio.timeout(PATIENCE):
            counts = await asyncio.gather(
                *(
                    add_partitions(
                        connection,
                        NAME,
                        history=[DAY * (1 + (number + shift) % 25) for shift in range(25)],
                        errors=[DAY * (25 - (number + shift) % 25) for shift in range(25)],
                    )
                    for number, connection in enumerate(connections)
                )
            )
    finally:
        for connection in connections:
            await connection.close(timeout=PATIENCE)
    assert sum(counts) == len(await partitions(jobs))


# -- days ----------------------------------------------------------------------------------------------------


async def day_of(jobs: Jobs, moment: str, seconds: float) -> Any:
    """The day on which something expires that is kept at this moment."""
    return await jobs.connection.fetchval(
        f"select {EXPIRES_ON} from (select $1::text::timestamptz as kept_at, $2::float8 as keep_seconds) x",
        moment,
        seconds,
    )


@looped("zone", ["UTC", "Asia/Kolkata", "America/Los_Angeles", "Pacific/Kiritimati"])
@looped(
    ("moment", "seconds", "day"),
    [
        ("2026-03-01 23:59:59.999999+00", 1.0, "2026-03-02"),
        ("2026-03-01 23:59:59+00", 0.5, "2026-03-01"),
        ("2026-03-02 00:00:00+00", 1.0, "2026-03-02"),
        ("2026-02-28 12:00:00+00", DAY, "2026-03-01"),
        ("2028-02-28 12:00:00+00", DAY, "2028-02-29"),
        ("2026-03-01 00:00:00+00", 17 * DAY, "2026-03-18"),
        ("2026-03-01 00:00:00+00", 18 * DAY, "2026-03-22"),  # the end of that week
        ("2026-01-15 00:00:00+00", 101 * DAY, "2026-04-30"),  # the end of that month
    ],
)
async def test_days_are_those_of_utc(jobs: Jobs, zone: str, moment: str, seconds: float, day: str) -> None:
    await jobs.connection.execute(f"set timezone = '{zone}'")
    assert (await day_of(jobs, moment, seconds)).isoformat() == day


async def test_a_clock_that_jumps_makes_the_partitions_of_other_days(jobs: Jobs, workers: Workers) -> None:
    """Seen from a server whose clock was set, rows expire on days that no maintenance task has foreseen."""
    await workers.start([kept])
    days = [1, 12, 30, 90, 400, 3000]
    ids = [await jobs.add("kept", {"n": day}, flags=[f"py:keep={day * DAY:.0f}"]) for day in days]
    await jobs.until_gone()
    assert await ended(jobs) == ids
    expiry = await jobs.connection.fetch(
        f"select expires_on - (finished_at at time zone 'UTC')::date as days from {HISTORY} order by job_id"
    )
    for row, day in zip(expiry, days, strict=True):
        assert day <= row["days"] <= day + 40


async def test_what_expires_today_is_kept_until_the_day_is_over(jobs: Jobs) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}._private_py_add_partition('{HISTORY}'::regclass, "
        "(now() at time zone 'UTC')::date - day) from generate_series(0, 3) day"
    )
    today = await jobs.connection.fetchval("select (now() at time zone 'UTC')::date")
    dropped = await drop_expired(jobs.connection, NAME)
    now = await jobs.connection.fetchval("select (now() at time zone 'UTC')::date")
    assert dropped == 3 + (now - today) // timedelta(days=1)


async def test_a_missing_partition_is_told_from_other_violations(jobs: Jobs) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as missing:
        await jobs.connection.execute(
            f"insert into {ERRORS} "
            "(job_id, attempt, task_id, failed_at, is_final, message, fingerprint, expires_on) "
            "values (1, 1, 1, now(), true, '', '', '1999-01-01')"
        )
    assert is_partition_missing(missing.value)
    await jobs.connection.execute(
        f"alter table {SCHEMA}._private_jobs add constraint odd check (task_id > 0)"
    )
    with pytest.raises(asyncpg.CheckViolationError) as other:
        await jobs.connection.execute(f"insert into {SCHEMA}._private_jobs (task_id) values (-1)")
    assert not is_partition_missing(other.value)
