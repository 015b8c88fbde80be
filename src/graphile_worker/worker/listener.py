"""Listener: hears `jobs:insert` and `worker:migrate` on a connection of its own.

It reconnects with a growing delay and lets the pool look for jobs at once when it is back. Now and then it
sends itself a notification on a channel of its own: if that does not arrive, LISTEN does not work here (a
connection that died silently, or a transaction pooler in between), and the connection is made anew.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from ..clock import Clock
from ..db.connection import Connection, Pool
from ..hooks import Events
from ..hooks.events import (
    PoolListenConnecting,
    PoolListenError,
    PoolListenNotification,
    PoolListenReleased,
    PoolListenSuccess,
)

JOBS_INSERT = "jobs:insert"
WORKER_MIGRATE = "worker:migrate"
WATCH_INTERVAL = 30.0  # seconds between two notifications to ourselves
ANSWER_WITHIN = 10.0  # seconds for one of them to arrive

logger = logging.getLogger("graphile_worker.worker")


class ListenDeafError(Exception):
    """A notification sent to ourselves did not arrive."""


class Listener:
    """Keeps one connection listening until stopped."""

    def __init__(
        self,
        pool: Pool,
        events: Events,
        clock: Clock,
        *,
        pool_id: str,
        on_jobs: Callable[[int], None],
        on_migration: Callable[[int, bool], None],
        on_ready: Callable[[], None],
        watch_interval: float = WATCH_INTERVAL,
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        self._pool = pool
        self._events = events
        self._clock = clock
        self._pool_id = pool_id
        self._on_jobs = on_jobs
        self._on_migration = on_migration
        self._on_ready = on_ready
        self._watch_interval = watch_interval
        self._answer_within = answer_within
        self._own_channel = f"worker:ping:{pool_id}"
        self._echo = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker listener")

    async def stop(self) -> None:
        """Stop listening and give the connection back."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    async def _run(self) -> None:
        failures = 0
        while True:
            self._events.emit(PoolListenConnecting(pool_id=self._pool_id, attempts=failures))
            heard = False
            try:
                connection: Connection = await self._pool.acquire()
                try:
                    await self._listen(connection)
                    heard = True
                    await self._watch(connection)
                finally:
                    await self._release(connection)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failures = 1 if heard else failures + 1
                self._events.emit(PoolListenError(pool_id=self._pool_id, error=error))
                await self._clock.sleep(reconnect_delay(failures))

    async def _listen(self, connection: Connection) -> None:
        self._events.emit(PoolListenSuccess(pool_id=self._pool_id))
        for channel in (JOBS_INSERT, WORKER_MIGRATE, self._own_channel):
            await connection.add_listener(channel, self._heard)
        self._on_ready()  # jobs may have been announced while nobody listened

    async def _watch(self, connection: Connection) -> None:
        """Return only by an error: the connection ended, or it has gone deaf."""
        ended = asyncio.Event()

        def on_end(*_: object) -> None:
            ended.set()

        connection.add_termination_listener(on_end)
        try:
            while True:
                self._echo.clear()
                await connection.execute(
                    "select pg_notify($1, '')", self._own_channel, timeout=self._answer_within
                )
                try:
                    async with asyncio.timeout(self._answer_within):
                        await self._echo.wait()
                except TimeoutError:
                    raise ListenDeafError(
                        "a notification that the worker sent to itself did not arrive; is there a pooler in "
                        "transaction mode in between? Jobs are still found by polling"
                    ) from None
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._watch_interval):
                        await ended.wait()
                if ended.is_set():
                    raise ConnectionError("the connection that listens was closed by the server")
        finally:
            with suppress(Exception):
                connection.remove_termination_listener(on_end)

    async def _release(self, connection: Connection) -> None:
        released_by_us = self._stopping.is_set()
        if not connection.is_closed():
            with suppress(Exception):
                for channel in (JOBS_INSERT, WORKER_MIGRATE, self._own_channel):
                    await connection.remove_listener(channel, self._heard)
        if not released_by_us:
            connection.terminate()
        with suppress(Exception):  # gone either way
            await self._pool.release(connection)
        if released_by_us:
            self._events.emit(PoolListenReleased(pool_id=self._pool_id))

    def _heard(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        if channel == self._own_channel:
            self._echo.set()
            return
        if self._stopping.is_set():
            return
        if self._events.wants(PoolListenNotification):
            self._events.emit(PoolListenNotification(pool_id=self._pool_id, channel=channel, payload=payload))
        if channel == JOBS_INSERT:
            count = announced_jobs(payload)
            if count > 0:
                self._on_jobs(count)
        elif channel == WORKER_MIGRATE:
            migration = announced_migration(payload)
            if migration is not None:
                self._on_migration(*migration)


def announced_jobs(payload: str) -> int:
    """How many jobs a notification speaks of; 1 where it does not say, or cannot be read."""
    values = _object(payload)
    count = values.get("count", 1)
    return count if isinstance(count, int) and not isinstance(count, bool) else 1


def announced_migration(payload: str) -> tuple[int, bool] | None:
    """Number of the migration and whether it breaks older workers; None if it cannot be read."""
    values = _object(payload)
    number, breaking = values.get("migrationNumber"), values.get("breaking")
    if isinstance(number, int) and not isinstance(number, bool):
        return number, breaking is True
    return None


def reconnect_delay(failures: int, *, share: Callable[[], float] = random.random) -> float:
    """Seconds to wait after so many failures in a row, up to a minute, spread a little."""
    longest = min(60.0, 0.05 * math.exp(min(failures, 10)))
    return longest * (0.5 + math.sqrt(share()) / 2)


def _object(payload: str) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(payload)
    except (msgspec.DecodeError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
