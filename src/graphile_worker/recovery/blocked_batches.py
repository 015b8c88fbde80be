"""Ends held batches that other sessions wait for while the pool cannot, because its event loop is blocked.

A batch locks the rows of its jobs, and the table against schema changes. While a task blocks the event loop,
the pool cannot end it. Sessions that change such a job, or the table, wait, and all others behind a change of
the table. The task itself may be the one that waits, if it uses a blocking driver.

The heartbeat thread can terminate the session of the batch, but not use it. Before that it locks the same
rows in a mode that is compatible only with the lock of a held batch. So no ordinary fetch can take the jobs
before they are locked in the ordinary way. To the pool, the batch looks like one whose connection was lost.
Only a held fetch of another worker could take a job in the millisecond after the session has ended; the pool
then learns that it has lost this job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from ..database.connections.bound import is_gone
from ..database.connections.connection import Connection
from ..database.connections.errors import explained
from ..database.sql import load
from ..values.schema_name import SchemaName

MOST_WAIT = "500"  # milliseconds for a lock: heartbeats wait meanwhile
MOST_TIME = "2000"  # milliseconds for a statement
PAUSES = (0.001,) * 20 + (0.02,) * 50  # seconds; short at first: a held fetch elsewhere may be quick, too

logger = logging.getLogger("graphile_worker.recovery")


class OpenBatch(msgspec.Struct, frozen=True):
    """A held batch as seen from outside the event loop's thread."""

    backend_pid: int
    ids: list[int]
    """The ids of its jobs; empty if the answer of the fetch was not read, so that none has started."""
    is_current: Callable[[], bool]
    """Whether it is still open."""
    keep: Callable[[], None]
    """Called before its jobs are locked, so that the pool does not take these locks for a mistake."""
    keeping_over: Callable[[], None]
    """Called when no more jobs will be locked: the pool then returns those that it does not run."""
    now: datetime | None
    """The worker's time; None for the server's."""


class BlockedBatches:
    """Ends the batches of one pool that other sessions wait for."""

    def __init__(
        self, schema: SchemaName, pool_id: str, get_open_batches: Callable[[], Sequence[OpenBatch]]
    ) -> None:
        """`get_open_batches` is called in the heartbeat thread."""
        self._schema = schema
        self._pool_id = pool_id
        self._get_open_batches = get_open_batches

    async def end(self, connection: Connection, *, timeout: float) -> None:
        """End those that other sessions wait for. After a failure, the next heartbeat tries again."""
        batches = {batch.backend_pid: batch for batch in self._get_open_batches()}
        if not batches:
            return
        try:
            async with asyncio.timeout(timeout):
                for row in await connection.fetch(load("recovery/blocking_sessions"), list(batches)):
                    batch = batches[row["pid"]]
                    if batch.is_current():  # then it was when the transaction was looked at, too
                        batch.keep()
                        try:
                            await self._end(connection, batch, row["xact_start"])
                        finally:
                            batch.keeping_over()
        except Exception as error:
            if is_gone(connection) or isinstance(error, TimeoutError):
                raise
            logger.warning("could not end a held batch that other sessions wait for: %s", explained(error))

    async def _end(self, connection: Connection, batch: OpenBatch, began: datetime) -> None:
        schema, pid = self._schema, batch.backend_pid
        async with connection.transaction():
            await connection.fetchrow(load("session/bounds", schema), MOST_TIME, MOST_WAIT)
            kept = await connection.fetch(load("recovery/keep_held_jobs", schema), batch.ids)
            if await connection.fetchrow(load("recovery/end_held_session"), pid, began) is None:
                return  # it has ended, or is about to
            left = {row["id"] for row in kept}
            for pause in PAUSES:  # the session is ending, and one that waited may get a row first
                rows = await connection.fetch(
                    load("recovery/lock_kept_jobs", schema), self._pool_id, list(left), batch.now
                )
                left.difference_update(row["id"] for row in rows)
                if not left:
                    break
                await asyncio.sleep(pause)
        logger.warning(
            "ended a held batch: others waited for it, and the event loop is blocked; %d of its %d jobs are "
            "locked in the ordinary way",
            *(len(batch.ids) - len(left), len(batch.ids)),
        )
