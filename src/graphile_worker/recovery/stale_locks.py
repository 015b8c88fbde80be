"""Stale locks: clear locks older than four hours, whatever runtime holds them (RL1, RL2).

Every runtime does this. It is the last resort for jobs of workers that send no heartbeats.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime

from ..database.connections.connection import Connection, Pool
from ..database.sql import load
from ..database.statements.maintenance import own_session
from ..database.statements.write import delete_retired
from ..hooks import Events
from ..hooks.events import ResetLockedFailure, ResetLockedStarted, ResetLockedSuccess
from ..values.clock import Clock
from ..values.schema_name import SchemaName
from .registry.workers import delete_old_rust_workers
from .sweeper import Periodic

FIRST_WITHIN = 60.0  # seconds after the start
TIMEOUT = 120.0  # seconds


class StaleLocks(Periodic):
    """Clears stale locks at random intervals until stopped; a run in progress is finished."""

    def __init__(
        self,
        pool: Pool,
        schema: SchemaName,
        events: Events,
        clock: Clock,
        *,
        pool_id: str,
        min_interval: float,
        max_interval: float,
        use_local_time: bool = False,
        prepared_statements: bool = True,
        share: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(
            "stale locks",
            self._reset,
            clock,
            first_after=share() * min(FIRST_WITHIN, max_interval),
            stop_timeout=None,
        )
        self._pool = pool
        self._schema = schema
        self._events = events
        self._pool_id = pool_id
        self._min_interval = min_interval
        self._max_interval = max_interval
        self._use_local_time = use_local_time
        self._prepared_statements = prepared_statements
        self._share = share

    async def _reset(self) -> float:
        delay = self._min_interval + self._share() * (self._max_interval - self._min_interval)
        self._events.emit(ResetLockedStarted(pool_id=self._pool_id))
        now = self._clock.now() if self._use_local_time else None
        failure: Exception | None = None
        try:
            # The timeout of `acquire` also limits the release, which would wait for a silent server.
            async with (
                asyncio.timeout(TIMEOUT),
                own_session(
                    self._pool, prepared_statements=self._prepared_statements, timeout=TIMEOUT
                ) as connection,
            ):
                await reset_locked(connection, self._schema, now)
                await delete_old_rust_workers(connection, self._schema)
        except Exception as error:
            failure = error
        shown = None if self._stop_requested.is_set() else delay
        if failure is not None:
            self._events.emit(ResetLockedFailure(pool_id=self._pool_id, error=failure, delay=shown))
        else:
            self._events.emit(ResetLockedSuccess(pool_id=self._pool_id, delay=shown))
        return delay


async def reset_locked(
    connection: Connection, schema: SchemaName, now: datetime | None = None
) -> tuple[int, int]:
    """Clear locks older than four hours; return how many jobs and queues were freed."""
    async with connection.transaction():
        row = await connection.fetchrow(load("recovery/reset_locked", schema), now)
        if row is None:
            return 0, 0
        if row["retired"]:
            await delete_retired(connection, schema, row["retired"])
    return row["jobs"], row["queues"]
