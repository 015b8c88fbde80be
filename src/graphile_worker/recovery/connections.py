"""Connections for heartbeats: one of the worker's own, or one of the caller's pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from ..db.borrowed import give_back, throw_away
from ..db.connection import Connection, Pool
from ..db.dsn import Dsn
from ..db.open import connect

CONNECT_TIMEOUT = 5.0  # seconds
CLOSE_TIMEOUT = 2.0

OpenConnection = Callable[[], AbstractAsyncContextManager[Connection]]
"""Opens a connection for one `async with` block."""


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
