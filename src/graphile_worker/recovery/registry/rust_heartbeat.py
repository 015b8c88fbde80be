"""RustHeartbeat: for Rust workers, which recover the jobs of pools without a fresh row in their register.

Our migration installs the register, so the row is there before the pool locks its first job, and before any
Rust worker can look. Where our role may not create it, a Rust worker may do so at any time, so each heartbeat
looks for it until then.
"""

from __future__ import annotations

import asyncio
import logging

from ...database.connections import sqlstates
from ...database.connections.connection import Connection
from ...database.connections.errors import sqlstate_of
from ...database.connections.retry import is_retryable
from ...values.clock import uptime
from ...values.schema_name import SchemaName
from .workers import (
    Registration,
    deregister_rust_workers,
    may_use_rust_workers,
    send_rust_heartbeat,
)

HEARTBEAT_INTERVAL = 20.0  # seconds at most; the Rust port expects one every 30
MAY_TAKE = "Rust workers with recovery may take jobs that this worker runs"
GONE = (sqlstates.UNDEFINED_TABLE, sqlstates.INVALID_SCHEMA_NAME)

logger = logging.getLogger("graphile_worker.recovery")


class RustHeartbeat:
    """One pool's row in the Rust port's table of workers."""

    def __init__(self, registration: Registration, schema: SchemaName, *, has_table: bool) -> None:
        """`has_table`: whether the table is known to exist."""
        self._schema = schema
        self._pool_id = registration.id
        self._pid = registration.pid
        self._interval = min(registration.heartbeat_interval, HEARTBEAT_INTERVAL)
        self.timeout = registration.grace / 3
        """Seconds to wait for the table, which may be locked."""
        self.has_table = has_table
        self._next_heartbeat = 0.0
        self.is_registered = False
        """Whether the pool has a row."""
        self._has_warned = False

    @property
    def due_in(self) -> float | None:
        """Seconds until the next heartbeat is due; None while there is no table."""
        return max(0.0, self._next_heartbeat - uptime()) if self.has_table else None

    def forget(self) -> None:
        """The row may be gone; the next heartbeat is due at once."""
        self._next_heartbeat = 0.0

    async def send_if_due(self, connection: Connection) -> None:
        """Write a heartbeat if one is due and the table exists."""
        now = uptime()
        try:
            if not self.has_table:
                self.has_table = await self._look(connection)
            if self.has_table and now >= self._next_heartbeat:
                await send_rust_heartbeat(
                    connection, self._schema, self._pool_id, self._pid, timeout=self.timeout
                )
                self.sent(now)
        except Exception as error:
            if sqlstate_of(error) is None or is_retryable(error):
                raise  # about the connection, not about the table
            self.has_table = False
            self._next_heartbeat = 0.0
            if sqlstate_of(error) not in GONE:
                self._warn(str(error))

    def sent(self, at: float) -> None:
        """A heartbeat sent then is in the table."""
        self.is_registered = True
        self._has_warned = False
        self._next_heartbeat = at + self._interval

    async def _look(self, connection: Connection) -> bool:
        async with asyncio.timeout(self.timeout):
            may_use = await may_use_rust_workers(connection, self._schema)
        if may_use is False:
            table = f"{self._schema.quoted}._private_workers"
            self._warn(f"this role may not write to their table; grant all on {table} to it")
        return bool(may_use)

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("cannot send heartbeats to Rust workers: %s; %s", reason, MAY_TAKE)

    async def deregister(self, connection: Connection) -> None:
        if self.is_registered:
            self.is_registered = False
            await deregister_rust_workers(connection, self._schema, [self._pool_id])
