"""JobWaiter: waits until jobs are finished, any number of them on one listening connection.

The order is listen, look, wait: what comes in between is announced or found. Announcements can be
lost, and behind a pooler in transaction mode none arrive, so every job is looked up now and then: rarely
while a ping of our own has shown that announcements arrive, more often otherwise. Workers announce the end of
jobs that were added with `keep`, so others are looked up more often, too.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context
from typing import Any

import msgspec

from ..database.connections.connection import Connection, Pool
from ..database.connections.errors import is_dead_session
from ..database.connections.retry import BROKEN_CONNECTION, Backoff, delays_for
from ..database.sql import load
from ..errors import GraphileWorkerError
from ..errors.text import summarize
from ..history.records import CurrentState
from ..values.schema_name import SchemaName

CHANNEL = "worker:ended"
POLL_INTERVAL = 10.0  # seconds between lookups while announcements arrive
FIRST_POLL, LONGEST_POLL, POLL_GROWTH = 0.25, 5.0, 1.5  # the same otherwise
LINGER = 5.0  # seconds without a waiter until the connection is returned
LOOKUP = 2_000  # jobs per statement

logger = logging.getLogger("graphile_worker.client")

Connect = Callable[[], AbstractAsyncContextManager[Connection]]
Look = Callable[[Sequence[int]], Awaitable[Iterable[CurrentState]]]


class JobWaiter:
    """Everyone who waits for a job through one client."""

    def __init__(
        self,
        pool: Pool,
        schema: SchemaName,
        look: Look,
        connect: Connect,
        context: Callable[[], Context],
        *,
        may_listen: bool = True,
    ) -> None:
        """`look` reads how jobs stand; `connect` is a connection for a statement of our own.

        `context` makes the context of the listening task, which outlives the request that waits first.

        The client keeps idle connections, so a small pool may have no other one. `may_listen`: whether the
        pool has a connection to spare for listening.
        """
        self._may_listen = may_listen
        self._pool = pool
        self._connect = connect
        self._context = context
        self._schema = schema
        self._look = look
        self._waiting: dict[int, list[asyncio.Future[CurrentState]]] = {}
        self._unannounced: set[int] = set()
        self._due: set[int] = set()
        self._wake = asyncio.Event()
        self._ping = ""
        self._hears = False  # whether announcements arrive
        self._is_lost = False  # whether the connection that listened is gone
        self._poll_interval = FIRST_POLL
        self._task: asyncio.Task[None] | None = None

    async def wait(self, job_id: int, *, is_announced: bool = True) -> CurrentState:
        """How the job stands once it is no longer pending. `is_announced`: whether its end will be."""
        future: asyncio.Future[CurrentState] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, []).append(future)
        if not is_announced:
            self._unannounced.add(job_id)
        self._due.add(job_id)
        self._poll_interval = FIRST_POLL
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name="graphile-worker waiting", context=self._context()
            )
        try:
            return await future
        finally:
            waiting = self._waiting.get(job_id, [])
            with suppress(ValueError):
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(job_id, None)
                self._unannounced.discard(job_id)

    async def close(self) -> None:
        """End all waiting with an error."""
        self._fail(GraphileWorkerError("the client was released while it waited for the job"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # -- the task ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(BROKEN_CONNECTION)
        while True:
            try:
                await self._listen_and_look()
                if not self._waiting:
                    return
                # The connection was lost: listen again on another one.
            except Exception as error:
                if delays_for(error) is None and not is_dead_session(error):
                    self._fail(error)
                    return
                logger.debug("waiting for jobs was interrupted: %s", error)
                await asyncio.sleep(backoff.next_delay(error))
            except BaseException as error:  # callers must not wait forever
                self._fail(GraphileWorkerError(f"waiting for jobs failed: {summarize(error)}"))
                raise

    async def _listen_and_look(self) -> None:
        if not self._may_listen:
            await self._look_until_idle()
            return
        async with self._pool.acquire() as connection:
            driver: Any = connection
            self._is_lost = self._hears = False
            await driver.add_listener(CHANNEL, self._heard)
            driver.add_termination_listener(self._lost)
            try:
                await self._send_ping()
                await self._look_until_idle()
            finally:
                with suppress(Exception):  # it is closed, and the pool has taken it back already
                    driver.remove_termination_listener(self._lost)
                    await driver.remove_listener(CHANNEL, self._heard)

    async def _send_ping(self) -> None:
        """From another connection: a pooler in transaction mode may deliver on the one that sends."""
        self._ping = secrets.token_hex(8)
        async with self._connect() as connection:
            await connection.execute(load("history/ping"), CHANNEL, self._ping)

    async def _look_until_idle(self) -> None:
        """Look up the jobs that are due, until there has been no waiter for a while."""
        loop = asyncio.get_running_loop()
        self._due.update(self._waiting)
        look_at = loop.time() + self._next_interval()
        while not self._is_lost:
            if self._due:
                due, self._due = self._due & self._waiting.keys(), set()
                await self._look_up(sorted(due))
            now = loop.time()
            if now >= look_at:
                await self._look_up(sorted(self._waiting))
                look_at = loop.time() + self._next_interval()
            timeout = LINGER if not self._waiting else max(0.0, look_at - loop.time())
            try:
                await asyncio.wait_for(self._wake.wait(), timeout)
            except TimeoutError:
                if not self._waiting:
                    return
            if self._wake.is_set():
                self._wake.clear()
                look_at = min(look_at, loop.time() + self._next_interval())

    def _next_interval(self) -> float:
        if self._hears and not self._unannounced:
            return POLL_INTERVAL
        interval = self._poll_interval
        self._poll_interval = min(interval * POLL_GROWTH, LONGEST_POLL)
        return interval

    async def _look_up(self, job_ids: Sequence[int]) -> None:
        for start in range(0, len(job_ids), LOOKUP):
            for current in await self._look(job_ids[start : start + LOOKUP]):
                if current.state == "pending":
                    continue
                for future in self._waiting.pop(current.job_id, []):
                    if not future.done():
                        future.set_result(current)

    def _fail(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    # -- announcements -------------------------------------------------------------------------------------

    def _heard(self, _: Connection, __: int, ___: str, payload: object) -> None:
        try:
            message = msgspec.json.decode(str(payload))
        except msgspec.DecodeError:
            return
        if not isinstance(message, dict):
            return
        if message.get("ping") == self._ping:
            self._hears = True
        elif message.get("schema") == self._schema.name:
            ids = message.get("ids")
            self._due.update(self._waiting if ids is None else self._waiting.keys() & set(ids))
        self._wake.set()

    def _lost(self, _: Connection) -> None:
        self._is_lost = True
        self._wake.set()
