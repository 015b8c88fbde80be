"""ConnectionPerUse: a pool that needs no opening or closing, for the clients of fixtures.

A real pool belongs to the event loop that opened it, and pytest plugins for asyncio give each test its own
loop. Here each `acquire` opens a connection on the current loop, and releasing it closes it.
"""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any

from ..database.connections.connection import AcquireContext, Connection
from ..database.connections.dsn import Dsn
from ..database.connections.open import connect


class ConnectionPerUse:
    """A Pool for the database at this URL."""

    serves_any_loop = True

    def __init__(self, url: str) -> None:
        self._dsn = Dsn.parse(url)
        self._lent = 0

    def acquire(self, *, timeout: float | None = None) -> AcquireContext:
        """Use it with `async with`, or `await` it and call `release`."""
        return _Borrowing(self)

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:
        self._lent -= 1
        await connection.close(timeout=timeout)

    async def open(self) -> Connection:
        connection = await connect(self._dsn, application_name="graphile_worker_testing")
        self._lent += 1
        return connection

    def get_max_size(self) -> int:
        return 100  # the default max_connections of a server

    def get_size(self) -> int:
        return self._lent

    def get_idle_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing to do."""

    def terminate(self) -> None:
        """Nothing to do."""


class _Borrowing:
    def __init__(self, pool: ConnectionPerUse) -> None:
        self._pool = pool
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        self._connection = await self._pool.open()
        return self._connection

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._pool.release(self._connection)

    def __await__(self) -> Generator[Any, Any, Connection]:
        return self._pool.open().__await__()
