"""Signs of life where the Rust port looks for them: it takes the jobs of pools that give none for minutes.

Its table is there only if a Rust worker installed the schema; nothing happens without it.
"""

from __future__ import annotations

import asyncio
import logging

from ..clock import uptime
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..db.retry import is_retryable
from ..schema_name import SchemaName
from .worker_rows import beat_beside_rust, has_rust_workers, leave_rust_workers

LOOK_INTERVAL = 300.0  # seconds; a Rust worker may come along later
BEAT_INTERVAL = 20.0  # seconds; the Rust port expects one every 30

logger = logging.getLogger("graphile_worker.recovery")


class RustWorkers:
    """What one pool writes into the Rust port's table of workers."""

    def __init__(self, schema: SchemaName, pool_id: str, pid: int, *, answer_within: float) -> None:
        self._schema = schema
        self._pool_id = pool_id
        self._pid = pid
        self._answer_within = answer_within
        self._look_at = 0.0
        self._beat_at = 0.0
        self._is_here = False
        self._is_known = False

    async def beat_if_due(self, connection: Connection) -> None:
        """Look whether the table is there, and write a heartbeat, if it is time for that."""
        async with asyncio.timeout(self._answer_within):
            await self._beat_if_due(connection, uptime())

    async def _beat_if_due(self, connection: Connection, now: float) -> None:
        try:
            if now >= self._look_at:
                self._is_here = await has_rust_workers(connection, self._schema)
                self._look_at = now + LOOK_INTERVAL
            if self._is_here and now >= self._beat_at:
                await beat_beside_rust(connection, self._schema, self._pool_id, self._pid)
                self._is_known = True
                self._beat_at = now + BEAT_INTERVAL
        except Exception as error:
            if sqlstate_of(error) is None or is_retryable(error):
                raise  # about the connection, not about the table
            self._is_here = False
            logger.warning("cannot show the Rust workers on this database that this one lives: %s", error)

    async def leave(self, connection: Connection) -> None:
        """The pool has ended."""
        if self._is_known:
            self._is_known = False
            await leave_rust_workers(connection, self._schema, [self._pool_id])
