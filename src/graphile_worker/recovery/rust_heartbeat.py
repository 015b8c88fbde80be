"""Heartbeats for the Rust port, whose workers recover the jobs of pools that send none for minutes.

Its table exists only if a Rust worker installed the schema; without it nothing happens.
"""

from __future__ import annotations

import asyncio
import logging

from ..clock import uptime
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..db.retry import is_retryable
from ..schema_name import SchemaName
from .worker_rows import deregister_rust_workers, has_rust_workers, send_rust_heartbeat

TABLE_CHECK_INTERVAL = 300.0  # seconds; a Rust worker may be deployed later
HEARTBEAT_INTERVAL = 20.0  # seconds; the Rust port expects one every 30

logger = logging.getLogger("graphile_worker.recovery")


class RustHeartbeat:
    """One pool's row in the Rust port's table of workers."""

    def __init__(self, schema: SchemaName, pool_id: str, pid: int, *, timeout: float) -> None:
        self._schema = schema
        self._pool_id = pool_id
        self._pid = pid
        self._timeout = timeout
        self._next_check = 0.0
        self._next_heartbeat = 0.0
        self._has_table = False
        self._is_registered = False

    async def send_if_due(self, connection: Connection) -> None:
        """Check for the table and write a heartbeat, each when it is due."""
        async with asyncio.timeout(self._timeout):
            await self._send_if_due(connection, uptime())

    async def _send_if_due(self, connection: Connection, now: float) -> None:
        try:
            if now >= self._next_check:
                self._has_table = await has_rust_workers(connection, self._schema)
                self._next_check = now + TABLE_CHECK_INTERVAL
            if self._has_table and now >= self._next_heartbeat:
                await send_rust_heartbeat(connection, self._schema, self._pool_id, self._pid)
                self._is_registered = True
                self._next_heartbeat = now + HEARTBEAT_INTERVAL
        except Exception as error:
            if sqlstate_of(error) is None or is_retryable(error):
                raise  # about the connection, not about the table
            self._has_table = False
            logger.warning("heartbeats for Rust workers failed: %s; they may take this worker's jobs", error)

    async def deregister(self, connection: Connection) -> None:
        """Remove the row of a pool that has ended."""
        if self._is_registered:
            self._is_registered = False
            await deregister_rust_workers(connection, self._schema, [self._pool_id])
