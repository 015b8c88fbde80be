"""Idle connections that a client keeps between two calls.

Acquiring a connection from the driver's pool and releasing it takes as much CPU time as adding a job. So a
client keeps the connections that it has just used, up to half of the pool, and releases those that stay idle.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from .bound import give_back, is_gone
from .connection import Connection, Pool

KEEP_FOR = 30.0  # seconds without use


class IdleConnections:
    """Idle connections of a pool; for one event loop."""

    def __init__(self, pool: Pool, *, keep_for: float = KEEP_FOR) -> None:
        self._pool = pool
        self._max_idle = pool.get_max_size() // 2
        self._keep_for = keep_for
        self._idle: list[Connection] = []
        self._waiting = 0  # callers that wait for the pool
        self._unused = 0  # connections not used since the last check
        self._timer: asyncio.TimerHandle | None = None
        self._releasing: set[asyncio.Task[None]] = set()

    async def borrow(self) -> Connection:
        """An idle connection, or one acquired from the pool."""
        connection = self.take()
        if connection is None:
            self._waiting += 1
            try:
                connection = await self._pool.acquire()
            finally:
                self._waiting -= 1
        return connection

    def take(self) -> Connection | None:
        """An idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            self._unused = min(self._unused, len(self._idle))
            if not is_gone(connection):  # a lost one has returned to the pool
                return connection
        return None

    def keep(self, connection: Connection) -> bool:
        """Keep this one for the next call; False if the caller has to release it."""
        if len(self._idle) >= self._max_idle or self._waiting:
            return False
        self._idle.append(connection)
        if self._timer is None:
            self._watch()
        return True

    async def spare(self) -> None:
        """Release one idle connection, so that `pool.acquire()` cannot starve."""
        connection = self.take()
        if connection is not None:
            await give_back(self._pool, connection)

    async def close(self) -> None:
        """Release all of them."""
        if self._timer is not None:
            self._timer.cancel()
        self._max_idle = 0
        idle, self._idle = self._idle, []
        for connection in idle:
            await give_back(self._pool, connection)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._releasing)

    def _watch(self) -> None:
        self._unused = len(self._idle)
        self._timer = asyncio.get_running_loop().call_later(self._keep_for, self._release_unused)

    def _release_unused(self) -> None:
        """The list is a stack, so unused connections are at its start."""
        self._timer = None
        unused, self._idle = self._idle[: self._unused], self._idle[self._unused :]
        for connection in unused:
            task = asyncio.get_running_loop().create_task(give_back(self._pool, connection))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)
        if self._idle:
            self._watch()
