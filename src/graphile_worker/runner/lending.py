"""Lending: the worker's connections, lent to tasks and to the cron scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..db.connection import Connection, Pool
from ..db.open import lend
from ..worker.pool import SESSIONS_WITH_LISTENER

CRON_TIMEOUT = 120.0  # seconds after which the cron scheduler gives a connection up


class Lending:
    """Lends connections of one pool, and keeps enough of them for the worker itself."""

    def __init__(self, database: Pool, *, reserved: int) -> None:
        self.database = database
        self.kept = SESSIONS_WITH_LISTENER + reserved
        """How many connections the worker uses itself."""
        self._for_tasks = asyncio.Semaphore(max(1, database.get_max_size() - self.kept))

    @asynccontextmanager
    async def to_task(self) -> AsyncIterator[Connection]:
        """Never the last ones: a worker that loses its own connections must be able to replace them."""
        async with self._for_tasks, lend(self.database) as connection:
            yield connection

    @asynccontextmanager
    async def to_cron(self) -> AsyncIterator[Connection]:
        """For a limited time: a server that stops answering must not block the scheduler permanently."""
        # The timeout for acquiring also limits the release.
        async with (
            asyncio.timeout(CRON_TIMEOUT),
            self.database.acquire(timeout=CRON_TIMEOUT) as connection,
        ):
            yield connection
