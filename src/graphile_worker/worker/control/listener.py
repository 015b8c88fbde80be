"""Listener: receives `jobs:insert`, `worker:migrate` and `worker:py` notifications on its own connection.

It reconnects with back-off, and starts a fetch once it is back. After a while without notifications it sends
a ping from another connection. All workers of the database receive that ping and send none themselves;
otherwise each of them would wake all the others. If the ping does not arrive, the connection is dead and
replaced; or LISTEN does not work at all, as behind a pooler in transaction mode. Then the listener reports
that once and retries less and less often.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ...database.connections.bound import give_back, is_gone, throw_away
from ...database.connections.connection import Connection, Pool
from ...database.connections.errors import is_dead_session, translate_errors, translated_error
from ...database.connections.listening import listen, unlisten
from ...database.sql import load
from ...database.statements.control import ping
from ...hooks.events import (
    PoolListenConnecting,
    PoolListenEcho,
    PoolListenError,
    PoolListenNotification,
    PoolListenReleased,
    PoolListenSuccess,
)
from ...hooks.faults import Supervised, is_our_end
from ..context import PoolContext
from ..session import Session
from .watch import Announcements

JOBS_INSERT = "jobs:insert"
WORKER_MIGRATE = "worker:migrate"
WORKER_PING = "worker:ping"
WORKER_CONTROL = "worker:py"  # operators ask for something; see `control`
LIMITS = '"limits"'  # in its payload: about a limit
REQUESTS = '"requests"'  # in its payload: for the pool that it names
FREED = '"freed"'  # in the payload of an announcement: the jobs are not new and may be due for long
OF_ONE_JOB = ',"count":1}'  # the end of the payload that add_job sends
CHANNELS = (JOBS_INSERT, WORKER_MIGRATE, WORKER_CONTROL, WORKER_PING)
WATCH_INTERVAL = 30.0  # seconds without a notification until a ping is sent, at most
ANSWER_WITHIN = 10.0  # seconds for the ping to arrive
RELEASE_WITHIN = 2.0  # seconds to unlisten before the connection is thrown away
MAX_UNAVAILABLE_DELAY = 600.0  # seconds between attempts if LISTEN does not work

logger = logging.getLogger("graphile_worker.worker")


class ListenUnavailableError(Exception):
    """A ping that the worker sent to itself did not arrive on a connection that never worked."""


class Listener:
    """Keeps one connection listening until stopped."""

    def __init__(
        self,
        context: PoolContext,
        pool: Pool,
        session: Session,
        notifications: Announcements,
        *,
        watch_interval: float = WATCH_INTERVAL,
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        """`session` sends pings, on another connection, since a pooler may echo what comes from its own."""
        self._pool = pool
        self._events = context.events
        self._clock = context.clock
        self._pool_id = context.pool_id
        self._session = session
        self._notifications = notifications
        self._watch_interval = watch_interval
        self._answer_within = answer_within
        self._is_tuned = context.options.prepared_statements  # with a pooler, settings do not stay
        self._echo = asyncio.Event()
        self._received_at = 0.0  # by the loop's clock
        self._ended = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._unavailable = 0  # attempts in a row in which LISTEN did not work
        self._has_worked = False  # whether a notification ever arrived
        self._is_connected = False
        self._loop = Supervised(self._run, "listener", is_over=lambda: self._stopping)

    @property
    def is_working(self) -> bool:
        """Whether notifications arrive, as far as this listener can tell."""
        return self._is_connected and self._has_worked and not self._unavailable

    def start(self) -> None:
        """Connect in the background."""
        self._emit_connecting()
        self._loop.start()

    async def stop(self) -> None:
        """Stop listening and release the connection."""
        self._stopping = True
        await self._loop.stop()

    # -- the loop ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._listen_until_lost()
            except ListenUnavailableError as error:
                self._unavailable += 1
                if self._unavailable == 1:
                    self._events.emit(PoolListenError(pool_id=self._pool_id, error=error))
                await self._clock.sleep(unavailable_delay(self._unavailable))
            except BaseException as error:
                if is_our_end(error):
                    raise
                self._failures += 1
                if not self._unavailable:
                    translated = translated_error(error) if is_dead_session(error) else None
                    self._events.emit(PoolListenError(pool_id=self._pool_id, error=translated or error))
                await self._clock.sleep(reconnect_delay(self._failures))
            self._emit_connecting()

    def _emit_connecting(self) -> None:
        if not self._unavailable:
            self._events.emit(PoolListenConnecting(pool_id=self._pool_id, attempts=self._failures))

    async def _listen_until_lost(self) -> None:
        """Listen on a new connection until it fails."""
        with translate_errors():
            connection: Connection = await self._pool.acquire()
        try:
            self._ended.clear()
            connection.add_termination_listener(self._on_end)
            if not self._unavailable:
                self._events.emit(PoolListenSuccess(pool_id=self._pool_id))
            async with asyncio.timeout(self._answer_within):
                settings = load("session/tune_listener") if self._is_tuned else ""
                await listen(connection, CHANNELS, self._on_notification, settings)
            self._failures = 0
            self._is_connected = True
            self._notifications.listening()
            await self._watch(connection)
        finally:
            self._is_connected = False
            await self._release(connection)

    async def _watch(self, connection: Connection) -> None:
        """Check at intervals that notifications arrive; send a ping if there were none."""
        time = asyncio.get_running_loop().time
        self._echo.clear()
        while True:
            pause = self._watch_interval * random.uniform(0.75, 1.0)  # noqa: S311 — so that one worker pings first
            if self._echo.is_set() or await self._answers(connection):
                if self._unavailable:  # it works after all
                    self._unavailable = 0
                    self._events.emit(PoolListenSuccess(pool_id=self._pool_id))
                self._has_worked = True
                self._events.emit(PoolListenEcho(pool_id=self._pool_id))
                pause += self._received_at - time()
            self._echo.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, pause)):
                    await self._ended.wait()
            self._check_ended()

    async def _answers(self, connection: Connection) -> bool:
        """Send a ping and wait for it: True if it arrives, False if none was sent, an error otherwise."""
        if not await self._can_ping(connection):
            return False
        if not await self._echo_arrives():
            raise _missing_ping(self._has_worked)
        return True

    async def _can_ping(self, connection: Connection) -> bool:
        """Send a ping; if that fails, check at least that our own connection responds."""
        self._echo.clear()
        try:
            async with asyncio.timeout(self._answer_within):
                await self._session.run(partial(ping, channel=WORKER_PING))
        except Exception as error:
            self._check_ended()
            logger.debug("the watch over LISTEN could not notify: %s", error)
            await connection.fetchval(load("session/backend_pid"), timeout=self._answer_within)
            return False
        return True

    async def _echo_arrives(self) -> bool:
        self._check_ended()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._answer_within):
                await self._echo.wait()
        self._check_ended()
        return self._echo.is_set()

    def _check_ended(self) -> None:
        if self._ended.is_set():
            raise ConnectionError("the LISTEN connection was closed by the server")

    def _on_end(self, *_: object) -> None:
        self._ended.set()
        self._echo.set()  # there is nothing to wait for

    async def _release(self, connection: Connection) -> None:
        """Unlisten and release the connection to the database pool; throw it away if it is broken."""
        if self._stopping and not is_gone(connection):
            try:
                async with asyncio.timeout(RELEASE_WITHIN):
                    await unlisten(connection, CHANNELS, self._on_notification)
                    connection.remove_termination_listener(self._on_end)
                    if self._is_tuned:
                        await connection.reset()
                    await give_back(self._pool, connection)
            except BaseException as error:
                await throw_away(self._pool, connection)
                if not isinstance(error, Exception):  # cancelled, with every other task of the loop
                    raise
        else:
            await throw_away(self._pool, connection)
        if self._stopping:
            self._events.emit(PoolListenReleased(pool_id=self._pool_id))

    # -- notifications -------------------------------------------------------------------------------------

    def _on_notification(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        self._received_at = asyncio.get_running_loop().time()
        self._echo.set()
        if self._stopping or channel == WORKER_PING:
            return
        if PoolListenNotification in self._events.observed:
            self._events.emit(PoolListenNotification(pool_id=self._pool_id, channel=channel, payload=payload))
        notifications = self._notifications
        if channel == JOBS_INSERT:
            count = 1 if payload.endswith(OF_ONE_JOB) else announced_jobs(payload)
            if FREED in payload:
                notifications.jobs_freed()
            if count > 0:
                notifications.jobs_added(count)
        elif channel == WORKER_CONTROL:
            if REQUESTS not in payload or self._pool_id in payload:
                if LIMITS in payload:
                    notifications.limits_changed()
                else:
                    notifications.control_changed()
        elif channel == WORKER_MIGRATE:
            migration = announced_migration(payload)
            if migration is not None:
                notifications.migration_announced(*migration)


def announced_jobs(payload: str) -> int:
    """How many jobs a notification announces; 1 if it has no count or cannot be decoded."""
    values = _object(payload)
    count = values.get("count", 1)
    return count if isinstance(count, int) and not isinstance(count, bool) else 1


def announced_migration(payload: str) -> tuple[int, bool] | None:
    """Number of the migration and whether it is breaking; None if the payload cannot be decoded."""
    values = _object(payload)
    number, breaking = values.get("migrationNumber"), values.get("breaking")
    if isinstance(number, int) and not isinstance(number, bool):
        return number, breaking is True
    return None


def reconnect_delay(failures: int, *, share: Callable[[], float] = random.random) -> float:
    """Seconds to wait after this many failures in a row: exponential up to a minute, with jitter (LS2)."""
    longest = min(60.0, 0.05 * math.exp(min(failures, 10)))
    spread = longest * (0.5 + math.sqrt(share()) / 2)
    return math.ceil(spread * 1000) / 1000


def unavailable_delay(attempts: int) -> float:
    """Seconds to wait if LISTEN does not work; jobs are found by polling."""
    return min(MAX_UNAVAILABLE_DELAY, 30.0 * 2.0 ** min(attempts - 1, 10))


def _missing_ping(has_worked: bool) -> Exception:
    """Why a ping did not arrive: a connection that worked before is dead, or LISTEN does not work at all."""
    if has_worked:
        return ConnectionError("the LISTEN connection has gone silent")
    return ListenUnavailableError(
        "LISTEN does not work here: a notification that the worker sent to itself did not arrive; is there a "
        "pooler in transaction mode in between? Jobs are found by polling"
    )


def _object(payload: str) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
