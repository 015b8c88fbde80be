"""Connections that stay borrowed between two uses.

To borrow a connection of the driver's pool and to give it back takes as much of a program's time as to add a
job. So a client keeps the ones it has just used for the next call, not more than half of the pool, and gives
them back when it had no use for them for a while.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from .borrowed import give_back, is_gone
from .connection import Connection, Pool

KEEP_FOR = 30.0  # seconds without use


class IdleConnections:
    """Connections of a pool that lie ready; for one event loop."""

    def __init__(self, pool: Pool, *, keep_for: float = KEEP_FOR) -> None:
        self._pool = pool
        self._most = pool.get_max_size() // 2
        self._keep_for = keep_for
        self._ready: list[Connection] = []
        self._waiting = 0  # for a connection of the pool
        self._unused = 0  # how many were not taken since the last look
        self._timer: asyncio.TimerHandle | None = None
        self._returning: set[asyncio.Task[None]] = set()

    async def borrow(self) -> Connection:
        """One that lies ready, or else one of the pool."""
        connection = self.take()
        if connection is None:
            self._waiting += 1
            try:
                connection = await self._pool.acquire()
            finally:
                self._waiting -= 1
        return connection

    def take(self) -> Connection | None:
        """One that lies ready, if there is one."""
        while self._ready:
            connection = self._ready.pop()
            self._unused = min(self._unused, len(self._ready))
            if not is_gone(connection):  # a lost one is back in the pool already
                return connection
        return None

    def keep(self, connection: Connection) -> bool:
        """Keep this one for the next use; False if the pool needs it, to which the caller gives it back."""
        if len(self._ready) >= self._most or self._waiting:
            return False
        self._ready.append(connection)
        if self._timer is None:
            self._watch()
        return True

    async def spare(self) -> None:
        """Give one back that lies ready, because somebody will ask the pool for one."""
        connection = self.take()
        if connection is not None:
            await give_back(self._pool, connection)

    async def close(self) -> None:
        """Give all of them back."""
        if self._timer is not None:
            self._timer.cancel()
        self._most = 0
        ready, self._ready = self._ready, []
        for connection in ready:
            await give_back(self._pool, connection)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._returning)

    def _watch(self) -> None:
        self._unused = len(self._ready)
        self._timer = asyncio.get_running_loop().call_later(self._keep_for, self._give_unused_back)

    def _give_unused_back(self) -> None:
        """The last in the list is the first to be taken, so those that nobody took are at its beginning."""
        self._timer = None
        unused, self._ready = self._ready[: self._unused], self._ready[self._unused :]
        for connection in unused:
            task = asyncio.get_running_loop().create_task(give_back(self._pool, connection))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)
        if self._ready:
            self._watch()
