"""Hearing of jobs: reconnecting, catching up, noticing a dead connection, and bearing nonsense and storms."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.hooks.events import (
    PoolFatalError,
    PoolListenConnecting,
    PoolListenError,
    PoolListenNotification,
    PoolListenSuccess,
)
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker.control.listener import (
    Listener,
    ListenUnavailableError,
    announced_jobs,
    announced_migration,
    reconnect_delay,
    unavailable_delay,
)
from support.pool_parts import pool_context
from support.proxy import Proxy, proxy_to
from support.working import PATIENCE, Gate, Jobs, Workers, until

# -- what it decides -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "longest"),
    [
        (1, 136),
        (2, 370),
        (3, 1005),
        (4, 2730),
        (5, 7421),
        (6, 20172),
        (7, 54832),
        (8, 60000),
        (10_000, 60000),
    ],
)
def test_the_delay_before_connecting_again_grows_to_a_minute_and_is_spread_over_its_upper_half(
    failures: int, longest: int
) -> None:
    """LS2."""
    assert round(reconnect_delay(failures, share=lambda: 1.0) * 1000) == longest
    least = reconnect_delay(failures, share=lambda: 0.0) * 1000
    assert longest / 2 <= round(least) <= math.ceil(longest / 2) + 1
    middle = reconnect_delay(failures, share=lambda: 0.25) * 1000
    assert longest * 0.75 - 1 <= middle <= longest * 0.75 + 2


def test_where_listen_does_not_work_it_is_tried_again_less_and_less_often() -> None:
    assert [unavailable_delay(tries) for tries in range(1, 8)] == [30, 60, 120, 240, 480, 600, 600]
    assert unavailable_delay(10**9) == 600


@pytest.mark.compat("EXT-6", "EXT-8")
@pytest.mark.parametrize(
    ("payload", "count"),
    [
        ('{"r":0.66,"count":1}', 1),
        ('{"r":0.66,"count":250}', 250),
        ('{"count":-1}', -1),
        ('{"count":0}', 0),
        ('{"r":0.5}', 1),
        ('{"count":"many"}', 1),
        ('{"count":true}', 1),
        ('{"count":1.5}', 1),
        ('{"count":null}', 1),
        ('{"count":' + "9" * 30 + "}", int("9" * 30)),
        ("", 1),
        ("garbage", 1),
        ("[]", 1),
        ("5", 1),
        ('{"count":', 1),
        ('{"count":' + "9" * 5000 + "}", 1),
        ("\ud800", 1),
        ("[" * 7000, 1),
    ],
)
def test_a_notification_is_one_job_unless_it_says_otherwise(payload: str, count: int) -> None:
    assert announced_jobs(payload) == count


@pytest.mark.parametrize(
    ("payload", "migration"),
    [
        ('{"migrationNumber":21,"breaking":true}', (21, True)),
        ('{"migrationNumber":21,"breaking":false}', (21, False)),
        ('{"migrationNumber":21}', (21, False)),
        ('{"migrationNumber":21,"breaking":1}', (21, False)),
        ('{"migrationNumber":"21","breaking":true}', None),
        ('{"breaking":true}', None),
        ("", None),
        ("garbage", None),
    ],
)
def test_a_migration_counts_only_when_it_can_be_read(
    payload: str, migration: tuple[int, bool] | None
) -> None:
    assert announced_migration(payload) == migration


# -- in a worker ---------------------------------------------------------------------------------------------


async def terminate_listener(jobs: Jobs) -> None:
    ended = await jobs.connection.fetch(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and application_name = 'graphile_worker' "
        "and query ilike 'listen%'"
    )
    assert len(ended) == 1


async def test_after_its_backend_was_terminated_it_is_back_soon_and_catches_up_at_once(
    workers: Workers, jobs: Jobs, recorder: EventRecorder
) -> None:
    """The poll interval is a minute, so what runs was heard of, or found when the listener was back."""
    gate = Gate()
    await workers.start({"wait": gate}, events=recorder.events)
    await recorder.wait_for(PoolListenSuccess)
    await until(lambda: is_listening(jobs))
    async with jobs.connection.transaction():  # nobody hears what is committed while nobody listens
        await jobs.add("wait", "unheard")
        await terminate_listener(jobs)
    await recorder.wait_for(PoolListenError)
    await gate.until_inside(1)
    assert gate.started == ["unheard"]
    gate.open()
    await until(lambda: is_listening(jobs))
    await jobs.add("wait", "heard")
    await gate.until_inside(1)
    assert gate.started == ["unheard", "heard"]
    await terminate_listener(jobs)
    await recorder.wait_for(PoolListenConnecting, count=3)
    attempts = [event.attempts for event in recorder.of(PoolListenConnecting)]
    assert attempts == [0, 1, 1]  # what failed before it was connected does not count
    gate.open()


async def is_listening(jobs: Jobs) -> bool:
    return await jobs.connection.fetchval(
        "select count(*) = 1 from pg_stat_activity where datname = current_database() "
        "and application_name = 'graphile_worker' and query like 'listen \"jobs:insert%' and state = 'idle'"
    )


async def test_nonsense_on_the_channels_is_borne(
    workers: Workers, jobs: Jobs, recorder: EventRecorder
) -> None:
    gate = Gate()
    await workers.start({"wait": gate}, events=recorder.events)
    await recorder.wait_for(PoolListenSuccess)
    await until(lambda: is_listening(jobs))
    nonsense = [
        "",
        "garbage",
        '{"count": -5}',
        '{"count": 1e308}',
        "[" * 7000,
        '{"count": ' + "9" * 100 + "}",
    ]
    for payload in nonsense:
        for channel in ("jobs:insert", "worker:migrate"):
            await jobs.connection.execute("select pg_notify($1, $2)", channel, payload)
    await recorder.wait_for(PoolListenNotification, count=2 * len(nonsense))
    await jobs.add("wait")
    await gate.until_inside(1)
    gate.open()
    assert recorder.count(PoolFatalError) == recorder.count(PoolListenError) == 0


async def test_a_busy_worker_does_not_fetch_once_per_notification(
    workers: Workers, jobs: Jobs, database_url: str, recorder: EventRecorder
) -> None:
    fetches: list[str] = []

    async def count_fetches(connection: Any) -> None:
        def note(record: Any) -> None:
            if "for update skip locked" in record.query and "locked_by = $1" in record.query:
                fetches.append(record.query)

        connection.add_query_logger(note)

    gate = Gate()
    async with asyncpg.create_pool(database_url, min_size=0, max_size=5, init=count_fetches) as pool:
        await jobs.add("wait")
        runner = await workers.start({"wait": gate}, pg_pool=pool, events=recorder.events)
        await gate.until_inside(1)
        await until(lambda: is_listening_anyhow(jobs))
        assert 1 <= len(fetches) <= 3  # the counter works
        recorder.clear()
        fetches.clear()
        for _ in range(300):
            await jobs.connection.execute(
                "select pg_notify('jobs:insert', json_build_object('r', random())::text)"
            )
        await recorder.wait_for(PoolListenNotification, count=300)
        assert len(fetches) <= 1
        gate.open()
        await jobs.until_gone()
        idle = len(fetches)
        async with jobs.connection.transaction():  # delivered together when they are committed
            for _ in range(300):
                await jobs.connection.execute(
                    "select pg_notify('jobs:insert', json_build_object('r', random())::text)"
                )
        await recorder.wait_for(PoolListenNotification, count=600)
        await jobs.add("wait")
        await gate.until_inside(1)
        assert len(fetches) - idle <= 10
        gate.open()
        await workers.stop(runner)


async def is_listening_anyhow(jobs: Jobs) -> bool:
    return await jobs.connection.fetchval(
        "select count(*) = 1 from pg_stat_activity where datname = current_database() "
        "and query like 'listen \"jobs:insert%' and state = 'idle'"
    )


# -- on its own, with little patience ------------------------------------------------------------------------


Ping = Callable[[Any], Awaitable[None]]
"""Notifies the listener through a connection."""


class Heard:
    """The pool of a listener: notes what it hears, and pings through another connection."""

    def __init__(self, pinging: Any, ping: Callable[[Ping], Awaitable[None]] | None = None) -> None:
        self.heard: list[str] = []
        self._pinging = pinging
        self._ping = ping

    async def run(self, statement: Ping) -> None:
        await (statement(self._pinging) if self._ping is None else self._ping(statement))

    def listening(self) -> None:
        self.heard.append("ready")

    def jobs_added(self, count: int) -> None:
        self.heard.append(f"{count} jobs")

    def jobs_freed(self) -> None: ...

    def limits_changed(self) -> None: ...

    def control_changed(self) -> None: ...

    def migration_announced(self, number: int, breaking: bool) -> None:
        self.heard.append(f"migration {number}")


@asynccontextmanager
async def listening(
    url: str,
    database_url: str,
    recorder: EventRecorder,
    *,
    ping: Callable[[Ping], Awaitable[None]] | None = None,
    clock: Any = None,
    watch_interval: float = 0.05,
    answer_within: float = 3.0,
) -> AsyncIterator[list[str]]:
    """A listener that connects through `url` and is pinged from elsewhere; gives what it reported."""
    pinging = await asyncpg.connect(database_url)
    pool_parts: Any = Heard(pinging, ping)
    try:
        async with asyncpg.create_pool(url, min_size=0, max_size=2) as pool:
            listener = Listener(
                pool_context(events=recorder.events, clock=clock, prepared_statements=False),
                pool,
                pool_parts,
                pool_parts,
                watch_interval=watch_interval,
                answer_within=answer_within,
            )
            listener.start()
            try:
                yield pool_parts.heard
            finally:
                await asyncio.wait_for(listener.stop(), PATIENCE)
    finally:
        await pinging.close()


async def test_a_connection_that_died_without_a_word_is_noticed_and_made_anew(
    jobs: Jobs, database_url: str, recorder: EventRecorder
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with proxy_to(database_url, Path(folder)) as (proxy, url):
            async with listening(url, database_url, recorder) as heard:
                await until(lambda: heard == ["ready"])
                await until(lambda: pings_heard(proxy, 2))
                proxy.links[0].is_silent = True
                error = await recorder.wait_for(PoolListenError)
                assert "gone silent" in str(error.error)
                await until(lambda: heard.count("ready") == 2)
                await jobs.connection.execute("select pg_notify('jobs:insert', '{\"count\": 7}')")
                await until(lambda: "7 jobs" in heard)
            assert recorder.count(PoolListenError) == 1


def pings_heard(proxy: Proxy, count: int) -> bool:
    """Whether the listener has come far enough to have heard itself."""
    return bool(proxy.links) and proxy.links[0].answered.count(b"worker:ping") >= count


async def test_who_hears_the_notifications_of_others_sends_none(
    database_url: str, recorder: EventRecorder
) -> None:
    sender = await asyncpg.connect(database_url)
    sent = {"eager": 0, "content": 0}

    def ping_of(name: str) -> Callable[[Ping], Awaitable[None]]:
        async def ping(statement: Ping) -> None:
            sent[name] += 1
            await statement(sender)

        return ping

    try:
        async with (
            listening(database_url, database_url, recorder, ping=ping_of("eager")) as heard,
            listening(
                database_url, database_url, EventRecorder(), ping=ping_of("content"), watch_interval=0.5
            ),
        ):
            await until(lambda: heard == ["ready"] and sent["eager"] >= 100)
            assert 1 <= sent["content"] <= 4  # one of its own would be due about ten times
    finally:
        await sender.close()


async def test_stopping_does_not_wait_for_a_connection_that_died_without_a_word(
    database_url: str, recorder: EventRecorder
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            proxy_to(database_url, Path(folder)) as (proxy, url),
            listening(url, database_url, recorder) as heard,
        ):
            await until(lambda: heard == ["ready"])
            proxy.links[0].is_silent = True


async def test_where_notifications_never_arrive_it_says_so_once_and_comes_back_when_they_do(
    database_url: str, recorder: EventRecorder
) -> None:
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    works = asyncio.Event()
    sender = await asyncpg.connect(database_url)

    async def ping(statement: Ping) -> None:
        if works.is_set():
            await statement(sender)

    try:
        async with listening(
            database_url, database_url, recorder, ping=ping, clock=clock, answer_within=1.0
        ) as heard:
            error = await recorder.wait_for(PoolListenError)
            assert isinstance(error.error, ListenUnavailableError)
            for tries in range(2, 5):
                await clock.advance(unavailable_delay(tries - 1))
                await until(lambda tries=tries: heard.count("ready") == tries)  # type: ignore[misc]
            assert recorder.count(PoolListenError) == 1
            assert recorder.count(PoolListenConnecting) == recorder.count(PoolListenSuccess) == 1
            works.set()
            advancing = asyncio.ensure_future(clock.advance(unavailable_delay(4)))
            await recorder.wait_for(PoolListenSuccess, count=2)
            advancing.cancel()  # it waits for the listener to fail and rest again
            assert recorder.count(PoolListenError) == 1
    finally:
        await sender.close()


async def test_a_server_that_cannot_be_reached_is_tried_again_and_every_failure_told(
    recorder: EventRecorder,
) -> None:
    class NoPool:
        async def acquire(self) -> Any:
            raise ConnectionRefusedError("nobody there")

    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    pool: Any = NoPool()
    pool_parts: Any = Heard(None)
    listener = Listener(pool_context(events=recorder.events, clock=clock), pool, pool_parts, pool_parts)
    listener.start()
    for failures in range(1, 6):
        await recorder.wait_for(PoolListenError, count=failures)
        await clock.advance(60)
    await listener.stop()
    attempts = [event.attempts for event in recorder.of(PoolListenConnecting)]
    assert attempts[:5] == [0, 1, 2, 3, 4]
