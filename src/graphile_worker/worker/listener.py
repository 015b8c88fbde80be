"""Listener: hears `jobs:insert` and `worker:migrate` on a connection of its own.

It reconnects with a growing delay and lets the pool look for jobs at once when it is back. If nothing was
heard for a while it has a notification sent from another connection. All workers of the database hear it and
are content with it: if each sent its own, every one would wake all the others. If it does not arrive, the
connection has died without a word and is made anew; or LISTEN does not work here at all, as behind a pooler
in transaction mode: then it says so once and tries again less and less often.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from ..clock import Clock
from ..db.borrowed import give_back, is_gone, throw_away
from ..db.connection import Connection, Pool
from ..db.errors import is_dead_session, translate_errors, translated_error
from ..hooks import Events
from ..hooks.events import (
    PoolListenConnecting,
    PoolListenEcho,
    PoolListenError,
    PoolListenNotification,
    PoolListenReleased,
    PoolListenSuccess,
)
from ..sql import load

JOBS_INSERT = "jobs:insert"
WORKER_MIGRATE = "worker:migrate"
WORKER_PING = "worker:ping"
OF_ONE_JOB = ',"count":1}'  # the end of what add_job says
CHANNELS = (JOBS_INSERT, WORKER_MIGRATE, WORKER_PING)
WATCH_INTERVAL = 30.0  # seconds after which silence is looked into, at the latest
ANSWER_WITHIN = 10.0  # seconds for one of them to arrive
RELEASE_WITHIN = 2.0  # seconds to stop listening before the connection is thrown away
MAX_DEAF_REST = 600.0  # seconds between two tries where LISTEN does not work

logger = logging.getLogger("graphile_worker.worker")


class ListenDeafError(Exception):
    """A notification that was sent to ourselves did not arrive."""


class Listener:
    """Keeps one connection listening until stopped."""

    def __init__(
        self,
        pool: Pool,
        events: Events,
        clock: Clock,
        *,
        pool_id: str,
        ping: Callable[[str], Awaitable[None]],
        on_jobs: Callable[[int], None],
        on_migration: Callable[[int, bool], None],
        on_ready: Callable[[], None],
        watch_interval: float = WATCH_INTERVAL,
        answer_within: float = ANSWER_WITHIN,
        is_tuned: bool = False,
    ) -> None:
        """`ping` notifies a channel; it must use another connection, for a pooler may answer itself.

        `is_tuned`: there is no pooler in between, so that settings stay with the session.
        """
        self._pool = pool
        self._events = events
        self._clock = clock
        self._pool_id = pool_id
        self._ping = ping
        self._on_jobs = on_jobs
        self._on_migration = on_migration
        self._on_ready = on_ready
        self._watch_interval = watch_interval
        self._answer_within = answer_within
        self._is_tuned = is_tuned
        self._echo = asyncio.Event()
        self._heard_at = 0.0  # by the loop's clock
        self._ended = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._deaf = 0  # connections in a row on which nothing was ever heard
        self._has_worked = False  # whether anything was ever heard
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background."""
        self._tell_connecting()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker listener")

    async def stop(self) -> None:
        """Stop listening and give the connection back."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    # -- the loop ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._listen_until_lost()
            except ListenDeafError as error:
                self._deaf += 1
                if self._deaf == 1:
                    self._events.emit(PoolListenError(pool_id=self._pool_id, error=error))
                await self._clock.sleep(deaf_rest(self._deaf))
            except Exception as error:
                self._failures += 1
                if not self._deaf:
                    told = translated_error(error) if is_dead_session(error) else None
                    self._events.emit(PoolListenError(pool_id=self._pool_id, error=told or error))
                await self._clock.sleep(reconnect_delay(self._failures))
            self._tell_connecting()

    def _tell_connecting(self) -> None:
        if not self._deaf:
            self._events.emit(PoolListenConnecting(pool_id=self._pool_id, attempts=self._failures))

    async def _listen_until_lost(self) -> None:
        """Listen on a new connection; ends by an error only."""
        with translate_errors():
            connection: Connection = await self._pool.acquire()
        try:
            self._ended.clear()
            connection.add_termination_listener(self._on_end)
            if not self._deaf:
                self._events.emit(PoolListenSuccess(pool_id=self._pool_id))
            async with asyncio.timeout(self._answer_within):
                if self._is_tuned:
                    await connection.fetch(load("session/tune_listener"))
                for channel in CHANNELS:
                    await connection.add_listener(channel, self._heard)
            self._failures = 0
            self._on_ready()  # jobs may have been announced while nobody listened
            await self._watch(connection)
        finally:
            await self._release(connection)

    async def _watch(self, connection: Connection) -> None:
        """As long as something is heard now and then, be it because we asked for it."""
        time = asyncio.get_running_loop().time
        self._echo.clear()
        while True:
            rest = self._watch_interval * random.uniform(0.75, 1.0)  # noqa: S311 — so that one is the first to ask
            if self._echo.is_set() or await self._answers(connection):
                if self._deaf:  # it works after all
                    self._deaf = 0
                    self._events.emit(PoolListenSuccess(pool_id=self._pool_id))
                self._has_worked = True
                self._events.emit(PoolListenEcho(pool_id=self._pool_id))
                rest += self._heard_at - time()
            self._echo.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, rest)):
                    await self._ended.wait()
            self._check_ended()

    async def _answers(self, connection: Connection) -> bool:
        """Whether a notification arrives if one is sent; an error if not, False if none could be sent."""
        if not await self._can_ping(connection):
            return False
        if not await self._echo_arrives():
            raise _silence(self._has_worked)
        return True

    async def _can_ping(self, connection: Connection) -> bool:
        """Send the notification. If that cannot be done, see at least whether our connection answers."""
        self._echo.clear()
        try:
            async with asyncio.timeout(self._answer_within):
                await self._ping(WORKER_PING)
        except Exception as error:
            self._check_ended()
            logger.debug("the watch over LISTEN could not notify: %s", error)
            await connection.fetchval(load("session/backend_pid"), timeout=self._answer_within)
            return False
        return True

    async def _echo_arrives(self) -> bool:
        echo = asyncio.ensure_future(self._echo.wait())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait(
                (echo, ended), timeout=self._answer_within, return_when=asyncio.FIRST_COMPLETED
            )
            if not echo.done():
                self._check_ended()
            return echo.done()
        finally:
            echo.cancel()
            ended.cancel()

    def _check_ended(self) -> None:
        if self._ended.is_set():
            raise ConnectionError("the connection that listens was closed by the server")

    def _on_end(self, *_: object) -> None:
        self._ended.set()

    async def _release(self, connection: Connection) -> None:
        """Leave nothing behind on a connection of the caller's pool; throw it away if it is broken."""
        if self._stopping and not is_gone(connection):
            try:
                async with asyncio.timeout(RELEASE_WITHIN):
                    for channel in CHANNELS:
                        await connection.remove_listener(channel, self._heard)
                    connection.remove_termination_listener(self._on_end)
                    if self._is_tuned:
                        await connection.reset()
                    await give_back(self._pool, connection)
            except BaseException as error:
                await throw_away(self._pool, connection)
                if not isinstance(error, Exception):  # all tasks are cancelled, those that stop us too
                    raise
        else:
            await throw_away(self._pool, connection)
        if self._stopping:
            self._events.emit(PoolListenReleased(pool_id=self._pool_id))

    # -- what is heard -------------------------------------------------------------------------------------

    def _heard(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._echo.set()
        if self._stopping or channel == WORKER_PING:
            return
        if self._events._wants(PoolListenNotification):
            self._events.emit(PoolListenNotification(pool_id=self._pool_id, channel=channel, payload=payload))
        if channel == JOBS_INSERT:
            count = 1 if payload.endswith(OF_ONE_JOB) else announced_jobs(payload)
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
    """Seconds to wait after so many failures in a row, up to a minute, spread a little (LS2)."""
    longest = min(60.0, 0.05 * math.exp(min(failures, 10)))
    spread = longest * (0.5 + math.sqrt(share()) / 2)
    return math.ceil(spread * 1000) / 1000


def deaf_rest(tries: int) -> float:
    """Seconds to wait where LISTEN does not work; polling finds the jobs meanwhile."""
    return min(MAX_DEAF_REST, 30.0 * 2.0 ** min(tries - 1, 10))


def _silence(has_heard: bool) -> Exception:
    """What it means that nothing arrived: a connection that worked before has died, another never worked."""
    if has_heard:
        return ConnectionError("the connection that listens has gone silent")
    return ListenDeafError(
        "LISTEN does not work here: a notification that the worker sent to itself did not arrive; is there a "
        "pooler in transaction mode in between? Jobs are found by polling"
    )


def _object(payload: str) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
