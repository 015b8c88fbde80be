"""The classic unlock: from time to time, clear locks older than four hours, whoever holds them (RL1, RL2).

It is the one safety net that every runtime shares.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime

from ..clock import Clock
from ..db.connection import Connection, Pool
from ..hooks import Events
from ..hooks.events import ResetLockedFailure, ResetLockedStarted, ResetLockedSuccess
from ..schema_name import SchemaName
from ..sql import load

FIRST_WITHIN = 60.0  # seconds after the start
ANSWER_WITHIN = 120.0  # seconds


class StaleLocks:
    """Runs the unlock at random intervals until stopped; a run that has begun is finished."""

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
        share: Callable[[], float] = random.random,
    ) -> None:
        self._pool = pool
        self._schema = schema
        self._events = events
        self._clock = clock
        self._pool_id = pool_id
        self._min_interval = min_interval
        self._max_interval = max_interval
        self._use_local_time = use_local_time
        self._share = share
        self._stop_asked = asyncio.Event()
        self._waiting: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first run comes within a minute."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker stale locks")

    def begin_to_stop(self) -> None:
        """Begin no further run."""
        self._stop_asked.set()
        if self._waiting is not None:
            self._waiting.cancel()

    async def stop(self) -> None:
        """Wait for a run in progress, then end."""
        self.begin_to_stop()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        delay = self._share() * min(FIRST_WITHIN, self._max_interval)
        while not self._stop_asked.is_set():
            self._waiting = asyncio.ensure_future(self._clock.sleep(delay))
            try:
                await asyncio.wait((self._waiting,))
            finally:
                self._waiting.cancel()
            if self._stop_asked.is_set():
                return
            delay = self._min_interval + self._share() * (self._max_interval - self._min_interval)
            await self._reset(delay)

    async def _reset(self, delay: float) -> None:
        self._events.emit(ResetLockedStarted(pool_id=self._pool_id))
        now = self._clock.now() if self._use_local_time else None
        try:
            # The limit for acquiring holds for giving back too, which else would wait for a silent server.
            async with (
                asyncio.timeout(ANSWER_WITHIN),
                self._pool.acquire(timeout=ANSWER_WITHIN) as connection,
            ):
                await reset_locked(connection, self._schema, now)
        except Exception as error:
            shown = None if self._stop_asked.is_set() else delay
            self._events.emit(ResetLockedFailure(pool_id=self._pool_id, error=error, delay=shown))
        else:
            shown = None if self._stop_asked.is_set() else delay
            self._events.emit(ResetLockedSuccess(pool_id=self._pool_id, delay=shown))


async def reset_locked(
    connection: Connection, schema: SchemaName, now: datetime | None = None
) -> tuple[int, int]:
    """Clear locks older than four hours; how many jobs and queues that freed."""
    row = await connection.fetchrow(load("recovery/reset_locked", schema), now)
    return (row[0], row[1]) if row is not None else (0, 0)
