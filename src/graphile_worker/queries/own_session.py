"""Pool connections for the worker itself, without the role's timeouts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..db.connection import Connection, Pool
from ..db.open import lend
from ..sql import load


@asynccontextmanager
async def own_session(
    pool: Pool, *, prepared_statements: bool, timeout: float | None = None
) -> AsyncIterator[Connection]:
    """A connection with our own timeouts; its session is reset before it returns to the pool.

    Without prepared statements there may be a pooler in transaction mode: settings would stay with a session
    that others use, so the role's timeouts apply. `timeout` is for getting and for returning it.
    """
    if not prepared_statements:
        async with pool.acquire(timeout=timeout) as connection:
            yield connection
        return
    async with lend(pool, timeout=timeout) as connection:
        await connection.fetch(load("session/tune_own"))
        yield connection
