"""The connection with which a worker shows that it lives: one of its own, or one of the caller's pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from ..db.borrowed import give_back, throw_away
from ..db.connection import Connection, Pool
from ..db.dsn import Dsn
from ..db.open import connect

CONNECT_WITHIN = 5.0  # seconds
CLOSE_WITHIN = 2.0

OpensConnection = Callable[[], AbstractAsyncContextManager[Connection]]
"""Gives a connection for the time of a `with` block."""


def from_dsn(dsn: Dsn, *, prepared_statements: bool) -> OpensConnection:
    """A connection that nobody else uses; may be opened on any event loop."""

    @asynccontextmanager
    async def open_() -> AsyncIterator[Connection]:
        async with asyncio.timeout(CONNECT_WITHIN):
            connection = await connect(dsn, prepared_statements=prepared_statements)
        try:
            yield connection
            await connection.close(timeout=CLOSE_WITHIN)
        finally:
            connection.terminate()

    return open_


def from_pool(pool: Pool) -> OpensConnection:
    """One of the pool's connections, given back as it came; for the event loop of the pool."""

    @asynccontextmanager
    async def open_() -> AsyncIterator[Connection]:
        connection: Connection = await pool.acquire(timeout=CONNECT_WITHIN)
        try:
            yield connection
            await connection.reset(timeout=CLOSE_WITHIN)
        except BaseException:
            await throw_away(pool, connection)
            raise
        await give_back(pool, connection)

    return open_
