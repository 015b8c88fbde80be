"""WatchedPool: a pool that notices when its callers wait for a connection and none becomes free.

Callers often wait for each other for a moment, and that is no reason to act. So the pool looks from time to
time, as long as an acquire is under way. The acquire itself costs little more than a comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from .connection import AcquireContext, Connection, Pool

LONG = 0.05  # seconds in which no acquire succeeds, although one was under way all the time


class WatchedPool:
    """A Pool for one event loop; it watches once `on_starved` is set."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.release = pool.release
        self.get_max_size = pool.get_max_size
        self.get_size = pool.get_size
        self.get_idle_size = pool.get_idle_size
        self.is_closing = pool.is_closing
        self.close = pool.close
        self.terminate = pool.terminate
        self.on_starved: Callable[[], None] | None = None
        """Called again and again while callers wait and no connection becomes free."""
        self._acquiring = 0  # callers
        self._acquired = 0  # connections since the last look
        self._is_starved = False
        self._timer: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        """Everything else of the pool, such as `may_be_in_transaction`."""
        return getattr(self._pool, name)

    @property
    def is_starved(self) -> bool:
        """Whether callers have waited for long, and still do."""
        return self._is_starved and self._acquiring > 0

    def acquire(self, *, timeout: float | None = None) -> AcquireContext:
        """As the pool's own."""
        context = self._pool.acquire(timeout=timeout)
        return context if self.on_starved is None else _Acquiring(self, context)

    def began(self) -> None:
        """A caller asks for a connection."""
        self._acquiring += 1
        if self._timer is None:
            self._look_later()

    def ended(self, *, has_connection: bool) -> None:
        """It has got one, or has given up."""
        self._acquiring -= 1
        if has_connection:
            self._acquired += 1
            self._is_starved = False

    def _look_later(self) -> None:
        self._acquired = 0
        self._timer = asyncio.get_running_loop().call_later(LONG, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._acquiring:
            return
        self._is_starved = not self._acquired and self._is_full
        if self._is_starved and self.on_starved is not None:
            self.on_starved()
        self._look_later()

    @property
    def _is_full(self) -> bool:
        """Whether all connections are open and in use; False also while one is being opened."""
        return self.get_idle_size() == 0 and self.get_size() >= self.get_max_size()


class _Acquiring:
    """An acquire that is counted while it is under way."""

    __slots__ = ("_context", "_pool")

    def __init__(self, pool: WatchedPool, context: AcquireContext) -> None:
        self._pool = pool
        self._context = context

    def __await__(self) -> Generator[Any, Any, Connection]:
        return self._counted(self._context).__await__()

    async def __aenter__(self) -> Connection:
        return await self._counted(self._context.__aenter__())

    async def _counted(self, acquiring: Awaitable[Connection]) -> Connection:
        has_connection = False
        self._pool.began()
        try:
            connection = await acquiring
            has_connection = True
            return connection
        finally:
            self._pool.ended(has_connection=has_connection)

    async def __aexit__(self, *exception: Any) -> Any:
        return await self._context.__aexit__(*exception)
