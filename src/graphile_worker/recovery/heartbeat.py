"""Heartbeat: proves to other workers that this pool is alive, until it is stopped.

It holds an advisory lock on a connection of its own, or on one of the caller's pool. A killed process loses
the lock as soon as the server sees the connection close; a busy one keeps it. Behind a pooler a lock would
not stay with us, so there the time of the last heartbeat counts. In both cases each heartbeat renews the
pool's lease on its jobs, carries the load of the process, and reports what the pool runs, and what blocks its
event loop, if that has changed.
It works on any event loop; in a thread of its own it survives a task that blocks the worker's loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from heapq import nsmallest
from typing import Protocol

from ..database.connections import sqlstates
from ..database.connections.bound import give_back, is_gone, throw_away
from ..database.connections.connection import Connection, Pool
from ..database.connections.dsn import Dsn
from ..database.connections.errors import explained, sqlstate_of
from ..database.connections.open import connect
from ..database.connections.retry import Backoff, Delays
from ..hooks.faults import is_our_end
from ..values.clock import uptime
from ..values.job import Job
from ..values.schema_name import SchemaName
from .held_batches import BlockedBatches, HoldingPool, OpenBatch
from .lease import Lease
from .registry.load import LoadMeter
from .registry.pool_state import GetPlaces, ReportingPool, StateReporter
from .registry.registering import Description, deregister_pool, register_pool
from .registry.rust_heartbeat import RustHeartbeat
from .registry.workers import (
    UNAVAILABLE,
    JobReport,
    Liveness,
    Registration,
    begin_heartbeats,
    end_old_session,
    lock_worker,
    send_heartbeat,
    unlock_worker,
)

logger = logging.getLogger("graphile_worker.recovery")

OpenConnection = Callable[[], AbstractAsyncContextManager[Connection]]
"""Opens a connection for one `async with` block."""

WHILE_BLOCKED = 1.0  # seconds between two heartbeats while the pool's event loop is blocked
SOON = 1.0  # seconds; what is due so shortly before a heartbeat is sent with it
RECONNECT = Delays(0.1, 1.3)  # seconds, with jitter at most two
LOCK_RETRY = 0.1  # seconds between attempts to take the lock
END_OLD_SESSION_AFTER = 5  # attempts until our own stale session is terminated
GIVE_UP_AFTER = 50  # attempts
MOST_REPORTED = 200  # running jobs in a report


class RecoverablePool(HoldingPool, ReportingPool, Protocol):
    """The part of a worker pool that recovery uses."""

    @property
    def once(self) -> bool: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def slots(self) -> Mapping[str, int]: ...

    @property
    def lease(self) -> Lease: ...

    @property
    def locked(self) -> list[int]: ...

    @property
    def is_settled(self) -> bool: ...

    def running_report(self) -> tuple[int, dict[int, float]]: ...

    def longest_delay(self) -> float | None: ...

    def open_batches(self) -> Sequence[OpenBatch]: ...

    def before_rerun(self, function: Callable[[Job], Awaitable[None]]) -> None: ...

    async def write_outcomes(self) -> None: ...


class Heartbeat:
    """The heartbeats of one pool."""

    def __init__(
        self,
        pool: RecoverablePool,
        registration: Registration,
        schema: SchemaName,
        open_connection: OpenConnection,
        rust_heartbeat: RustHeartbeat,
        *,
        started_at: datetime,
        on_heartbeat: Callable[[float, bool], bool],
        write_statistics: Callable[[Connection, bool], Awaitable[None]],
        description: Description | None,
        get_places: GetPlaces | None,
    ) -> None:
        """`on_heartbeat` gets the time when a heartbeat was sent and whether the pool had been declared dead;
        it returns False if the pool's event loop is closed. `write_statistics` gets whether it is the last
        call. The pool and callbacks are called in the thread of `run`.
        """
        self._pool = pool
        self._registration = registration
        self._schema = schema
        self._open_connection = open_connection
        self._rust_heartbeat = rust_heartbeat
        self._started_at = started_at
        self._on_heartbeat = on_heartbeat
        self._load = LoadMeter(pool.longest_delay)
        self._blocked_batches = BlockedBatches(schema, pool.id, pool.open_batches)
        self._state = StateReporter(schema, pool, get_places)
        self._description = description
        self._write_statistics = write_statistics
        self._timeout = registration.grace / 3
        self._backoff = Backoff(RECONNECT)
        self._can_lock = True
        self._can_report = True
        self._reported: JobReport | None = None
        self._is_failing = False
        self._stop_requested = threading.Event()
        self._deregister = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        return self._stop_requested.is_set()

    def request_stop(self, *, deregister: bool) -> None:
        """End `run`, from any thread; `deregister` if the pool is known to have no job."""
        self._deregister = deregister
        self._stop_requested.set()
        self.hurry()

    def hurry(self) -> None:
        """Send the next heartbeat now; may be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Send heartbeats until stopped; reconnect after failures."""
        self._wake = asyncio.Event()  # a run that crashed had another event loop
        self._loop = asyncio.get_running_loop()
        while not self._stop_requested.is_set():
            try:
                async with self._open_connection() as connection:
                    await self._run_on(connection)
            except PoolGoneError:
                return
            except BaseException as error:
                if is_our_end(error):
                    raise
                if self._stop_requested.is_set():
                    return
                self._failed(error)
                await self._wait(self._backoff.next_delay())

    # -- one connection ------------------------------------------------------------------------------------

    async def _run_on(self, connection: Connection) -> None:
        liveness, pid = await self._prepare(connection)
        connection.add_termination_listener(self._connection_ended)
        try:
            while not self._stop_requested.is_set() and not is_gone(connection):
                await self._beat(connection, liveness, pid)
                if self._pool.blockage() is not None:
                    await self._blocked_batches.end(connection, timeout=self._timeout)
                await self._rust_heartbeat.send_if_due(connection)
                await self._write_statistics(connection, False)
                await self._pause(connection)
            if is_gone(connection):
                raise ConnectionError("the connection was closed by the server")
        finally:
            with suppress(Exception):
                connection.remove_termination_listener(self._connection_ended)
        await self._sign_off(connection, liveness)

    async def _prepare(self, connection: Connection) -> tuple[Liveness, int | None]:
        """Take the lock if this session can keep it; return what proves us alive from now on."""
        if not self._can_lock:
            return "heartbeat", None
        is_locked = await begin_heartbeats(
            connection, self._schema, self._registration.id, timeout=self._timeout
        )
        if is_locked is None:
            self._can_lock = False
            logger.info("connected through a pooler: heartbeats in the table show that this worker is alive")
            return "heartbeat", None
        if not is_locked:
            await self._take_lock(connection)
        return "lock", connection.get_server_pid()

    async def _take_lock(self, connection: Connection) -> None:
        """Take the lock although something else holds it."""
        schema, pool_id, timeout = self._schema, self._registration.id, self._timeout
        for attempt in range(1, GIVE_UP_AFTER):
            # A sweep holds it for a moment. If it takes longer, our own previous session does: the server has
            # not noticed that its connection is lost.
            if attempt >= END_OLD_SESSION_AFTER:
                await end_old_session(connection, schema, pool_id, timeout=timeout)
            await self._wait(LOCK_RETRY)
            if await lock_worker(connection, schema, pool_id, timeout=timeout):
                return
        raise TimeoutError("this worker's advisory lock is held by another session")

    async def _beat(self, connection: Connection, liveness: Liveness, pid: int | None) -> None:
        sent_at = uptime()
        session_pid = await self._send(connection, liveness, pid)
        was_swept = session_pid is None
        if was_swept:
            await self._register_again(connection, liveness, pid)
        elif liveness == "lock" and session_pid != pid:
            self._can_lock = False
            raise ConnectionError("each statement runs in another session of the server")
        self._backoff.reset()
        if self._is_failing:
            self._is_failing = False
            logger.info("heartbeat restored")
        if not self._on_heartbeat(sent_at, was_swept):
            raise PoolGoneError
        await self._state.report(connection, timeout=self._timeout)

    async def _register_again(self, connection: Connection, liveness: Liveness, pid: int | None) -> None:
        """A sweep has deleted the row of this pool."""
        self._reported = None
        self._state.forget()
        slots = self._pool.slots
        self._rust_heartbeat.forget()
        await register_pool(
            connection,
            self._schema,
            replace(self._registration, concurrency=sum(slots.values())),
            None if self._description is None else self._description.with_slots(slots),
            self._rust_heartbeat,
            liveness=liveness,
            backend_pid=pid,
            started_at=self._started_at,
            timeout=self._timeout,
        )
        await self._rust_heartbeat.send_if_due(connection)  # before the pool locks jobs again

    async def _send(self, connection: Connection, liveness: Liveness, pid: int | None) -> int | None:
        """Send one heartbeat with the load, and with a report if it differs from the last one."""

        async def send(report: JobReport | None) -> int | None:
            sent_at = time.time()
            answer = await send_heartbeat(
                connection,
                self._schema,
                self._registration.id,
                liveness=liveness,
                backend_pid=pid,
                report=None if report is None else _with_ages(report),
                load=self._load.measure() if self._can_report else None,
                timeout=self._timeout,
            )
            if answer is None:
                return None
            session_pid, server_time = answer
            self._state.heard(sent_at, server_time)
            return session_pid

        if not self._can_report:
            return await send(None)
        report = JobReport(*self._pool.running_report())
        try:
            session_pid = await send(None if report == self._reported else report)
        except Exception as error:
            if sqlstate_of(error) not in (sqlstates.UNDEFINED_COLUMN, sqlstates.INSUFFICIENT_PRIVILEGE):
                raise
            self._can_report = False  # the schema's owner has not run this version's migration
            self._reported = None
            return await send(None)
        self._reported = report
        return session_pid

    async def _sign_off(self, connection: Connection, liveness: Liveness) -> None:
        schema, pool_id = self._schema, self._registration.id
        if self._deregister:
            await deregister_pool(connection, schema, pool_id, self._rust_heartbeat, timeout=self._timeout)
        elif liveness == "lock":  # without the row, nobody looks at it until the session ends
            await unlock_worker(connection, schema, pool_id, timeout=self._timeout)
        await self._write_statistics(connection, True)

    # -- failures and waiting ------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        is_unavailable = sqlstate_of(error) in UNAVAILABLE
        if is_unavailable:
            self._pool.lease.suspend()
        if not self._is_failing:  # log once until it works again
            self._is_failing = True
            logger.warning(
                "heartbeat failed: %s; %s",
                explained(error),
                "continuing without recovery" if is_unavailable else "retrying",
            )

    def _connection_ended(self, *_: object) -> None:
        self._wake.set()

    async def _pause(self, connection: Connection) -> None:
        """Wait until the next heartbeat; those for Rust workers are sent in between if that is far off."""
        interval = self._registration.heartbeat_interval
        if self._pool.blockage() is not None:
            interval = min(interval, WHILE_BLOCKED)
        until = uptime() + interval
        while True:
            remaining, due_in = until - uptime(), self._rust_heartbeat.due_in
            if due_in is None or due_in >= remaining - SOON:
                await self._wait(remaining)
                return
            await self._wait(due_in)
            if self._stop_requested.is_set() or is_gone(connection):
                return
            await self._rust_heartbeat.send_if_due(connection)

    async def _wait(self, seconds: float) -> None:
        """Sleep until the time has passed, the connection ends or a stop is requested."""
        self._wake.clear()
        if self._stop_requested.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()


def _with_ages(report: JobReport) -> tuple[int, list[int], list[float]]:
    """The parameters of a report: at most `MOST_REPORTED` jobs, the longest-running ones."""
    now = time.monotonic()
    running = report.running
    ids = nsmallest(MOST_REPORTED, running, key=running.__getitem__) if running else []
    return report.jobs_held, ids, [now - running[job_id] for job_id in ids]


class PoolGoneError(Exception):
    """The pool's event loop is closed; stop sending heartbeats so that its jobs can be recovered."""


CONNECT_TIMEOUT = 5.0  # seconds
CLOSE_TIMEOUT = 2.0


def from_dsn(dsn: Dsn, *, prepared_statements: bool) -> OpenConnection:
    """A connection of its own, on any event loop."""

    @asynccontextmanager
    async def open_() -> AsyncIterator[Connection]:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            connection = await connect(dsn, prepared_statements=prepared_statements)
        try:
            yield connection
            await connection.close(timeout=CLOSE_TIMEOUT)
        finally:
            connection.terminate()

    return open_


def from_pool(pool: Pool) -> OpenConnection:
    """One of the pool's connections, reset before it is returned; on the pool's event loop."""

    @asynccontextmanager
    async def open_() -> AsyncIterator[Connection]:
        connection: Connection = await pool.acquire(timeout=CONNECT_TIMEOUT)
        try:
            yield connection
            await connection.reset(timeout=CLOSE_TIMEOUT)
        except BaseException:
            await throw_away(pool, connection)
            raise
        await give_back(pool, connection)

    return open_
