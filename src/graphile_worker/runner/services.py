"""The connections of tasks, and the context variables of the engine.

- `ConnectionBudget` lends the worker's connections to tasks and to the cron scheduler. Every part of the
  worker uses `ConnectionBudget.database`, so that each wait for a connection is seen, and held batches leave
  theirs to it.
- `EngineContext` has the variables of the program that starts the engine, and what plugins set for it.
  asyncio tasks inherit the context in which they are created, so it is enough to create the first ones in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import Any, TypeVar

from ..database.connections.connection import Connection, Pool
from ..database.connections.open import lend
from ..database.connections.watched_pool import WatchedPool
from ..database.statements.cleanup import own_session
from ..worker.session import SESSIONS_WITH_LISTENER

CRON_TIMEOUT = 120.0  # seconds after which the cron scheduler gives a connection up


class _Permits(asyncio.Semaphore):
    """A semaphore with an acquire that does not wait."""

    def try_acquire(self) -> bool:
        if self.locked():
            return False
        self._value -= 1
        return True


class ConnectionBudget:
    """Lends connections of one pool, and keeps enough of them for the worker itself."""

    def __init__(self, database: Pool, *, reserved: int, prepared_statements: bool) -> None:
        self.database = WatchedPool(database)
        self._prepared_statements = prepared_statements
        self.kept = SESSIONS_WITH_LISTENER + reserved
        """How many connections the worker uses itself."""
        self._size = max(1, database.get_max_size() - self.kept)
        self._for_tasks = _Permits(self._size)
        self._used = 0  # of those for tasks, by tasks and by the worker
        self._waiting = 0  # tasks
        self._on_wanted: Callable[[], None] = lambda: None

    def watch(self, on_wanted: Callable[[], None]) -> None:
        """Call this when `wanted` has grown; the database is not watched before."""
        self._on_wanted = self.database.on_starved = on_wanted

    @asynccontextmanager
    async def to_task(self) -> AsyncIterator[Connection]:
        """Never the last ones: a worker that loses its own connections must be able to replace them."""
        await self._permit()
        self._used += 1
        try:
            async with lend(self.database) as connection:
                yield connection
        finally:
            self.put_back()

    async def _permit(self) -> None:
        if self._for_tasks.try_acquire():
            return
        self._waiting += 1
        self._on_wanted()
        try:
            await self._for_tasks.acquire()
        finally:
            self._waiting -= 1

    def take(self) -> bool:
        """Reserve a connection of the tasks; False if more than half of them would then be in use."""
        if self.wanted or 2 * (self._used + 1) > self._size or not self._for_tasks.try_acquire():
            return False
        self._used += 1
        return True

    def put_back(self) -> None:
        """Leave a connection to the tasks."""
        self._used -= 1
        self._for_tasks.release()

    @property
    def wanted(self) -> int:
        """How many connections are waited for.

        A task that asks for one may keep it for long, so each counts, and at once. All others, such as
        `helpers.add_job`, count as one, and after a while: they take turns quickly.
        """
        return self._waiting + self.database.is_starved

    @asynccontextmanager
    async def to_cron(self) -> AsyncIterator[Connection]:
        """For a limited time: a server that stops answering must not block the scheduler permanently."""
        # The timeout for acquiring also limits the release.
        async with (
            asyncio.timeout(CRON_TIMEOUT),
            own_session(
                self.database, prepared_statements=self._prepared_statements, timeout=CRON_TIMEOUT
            ) as connection,
        ):
            yield connection


T = TypeVar("T")


class EngineContext:
    """Starts parts of the engine in its context; in that of the caller, if no plugin sets anything."""

    def __init__(self, variables: Sequence[Callable[[], object]]) -> None:
        """`variables`: functions that set context variables."""
        self._context: Context | None = copy_context() if variables else None
        for function in variables:
            self.call(function)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function that starts tasks or threads."""
        return function() if self._context is None else self._context.run(function)

    async def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that starts some."""
        if self._context is None:
            return await coroutine
        return await asyncio.get_running_loop().create_task(coroutine, context=self._context.copy())
