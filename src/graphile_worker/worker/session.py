"""Session: a connection that the engine keeps for itself, made anew when it is lost.

Fetching and writing never wait for a connection that a task has borrowed, and run with settings made for
their statements. Only one statement is in flight at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from ..db.connection import Connection, Pool
from ..db.retry import BROKEN_CONNECTION, UNREACHABLE, delays_for
from ..schema_name import SchemaName
from ..sql import load

T = TypeVar("T")
Statement = Callable[[Connection], Awaitable[T]]


class Session:
    """Runs statements one at a time on a connection of the pool that it does not give back until closed."""

    def __init__(self, pool: Pool, schema: SchemaName, *, prepared_statements: bool = True) -> None:
        self._pool = pool
        self._schema = schema
        self._pinned = not prepared_statements
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def run(self, statement: Statement[T]) -> T:
        """Run one statement; nothing is retried. After a lost connection the next call opens a new one."""
        async with self._lock:
            connection = await self._open()
            try:
                if not self._pinned:
                    return await statement(connection)
                # A transaction pooler may hand each round trip to another server; a transaction keeps one.
                async with connection.transaction():
                    return await statement(connection)
            except BaseException as error:
                # A cancelled statement leaves the connection in the middle of an answer.
                if connection.is_closed() or isinstance(error, asyncio.CancelledError) or _is_lost(error):
                    await self._drop()
                raise

    async def close(self) -> None:
        """Give the connection back as it came."""
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is None:
                return
            if not connection.is_closed() and not self._pinned:
                with suppress(Exception):  # a connection that cannot be reset is closed by the pool
                    await connection.reset()
            await _release(self._pool, connection)

    async def _open(self) -> Connection:
        if self._connection is not None and self._connection.is_closed():
            await self._drop()
        if self._connection is None:
            connection: Connection = await self._pool.acquire()
            try:
                if (
                    not self._pinned
                ):  # behind a transaction pooler settings would stick to somebody else's session
                    await connection.fetch(load("queries/tune_session", self._schema))
            except BaseException:
                await _release(self._pool, connection)
                raise
            self._connection = connection
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
            await _release(self._pool, connection)


async def _release(pool: Pool, connection: Any) -> None:
    with suppress(Exception):  # the connection is gone either way; the pool makes a new one
        await pool.release(connection)


def _is_lost(error: BaseException) -> bool:
    """Whether another connection may fare better, be it to another server after a failover."""
    return delays_for(error) in (BROKEN_CONNECTION, UNREACHABLE)
