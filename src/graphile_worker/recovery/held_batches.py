"""Held batches when a worker dies, or when its event loop is blocked.

HoldGuard: while a death of a worker is fresh, this pool holds no batches. A job that kills its process while
it is held leaves no trace on its row: the transaction is rolled back, and the next worker would take it into
a held batch too. So after a death without a goodbye all pools lock jobs in the ordinary way for a while. The
next process that the job kills has locked it, and the recovery counts.

BlockedBatches: ends held batches that other sessions wait for while the pool cannot, because its event loop
is blocked. A batch locks the rows of its jobs, and the table against schema changes. Sessions that change
such a job, or the table, wait, and all others behind a change of the table. The task that blocks the loop may
itself be the one that waits, if it uses a blocking driver.

The heartbeat thread can terminate the session of the batch, but not use it. Before that it locks the same
rows in a mode that is compatible only with the lock of a held batch. So no ordinary fetch can take the jobs
before they are locked in the ordinary way. To the pool, the batch looks like one whose connection was lost.
Only a held fetch of another worker could take a job in the millisecond after the session has ended; the pool
then learns that it has lost this job.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from ..database.connections.bound import is_gone
from ..database.connections.connection import Connection
from ..database.connections.errors import explained, sqlstate_of
from ..database.connections.statement import bounded_transaction
from ..database.sql import load
from ..values.schema_name import SchemaName
from .registry.workers import UNAVAILABLE

FRESH = 60.0  # seconds after its sweep for which a death counts
PROVEN_AFTER = 0.5  # seconds: the server has noticed the end of a process, and a new pool has its lock

T = TypeVar("T")
logger = logging.getLogger("graphile_worker.recovery")


class HoldingPool(Protocol):
    """The part of a worker pool that the guard uses."""

    id: str

    @property
    def can_hold(self) -> bool: ...

    def allow_held_batches(self, after: float = 0.0) -> None: ...

    async def run_statement(self, statement: Callable[[Connection], Awaitable[T]]) -> T: ...


class Deaths(NamedTuple):
    """What is known about the deaths of other pools."""

    doubtful: int
    """How many other pools count as alive, without those whose processes run on this machine."""
    unproven: int
    """How many of them have not taken their lock yet; one of them may have died before it could."""
    calm_in: float
    """Seconds until no death counts."""


async def look_for_deaths(connection: Connection, schema: SchemaName, pool_id: str) -> Deaths | None:
    """None if this role may not know, or if the sessions are those of a pooler, where no lock stays ours."""
    row = await connection.fetchrow(load("recovery/look_for_deaths", schema), schema.name, pool_id, FRESH)
    if row is None or row["pid"] != connection.get_server_pid():
        return None
    doubtful = [
        is_unproven
        for host, process, is_unproven in zip(row["hosts"], row["processes"], row["unproven"], strict=True)
        if not _runs_here(host, process)
    ]
    return Deaths(len(doubtful), sum(doubtful), row["calm_in"])


def _runs_here(host: str, process: int) -> bool:
    """Whether this is another process of this machine. The predecessor in a container has our own number."""
    if os.name != "posix" or host != socket.gethostname() or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


class HoldGuard:
    """Allows a pool to hold batches, or forbids it."""

    def __init__(self, pool: HoldingPool, schema: SchemaName, *, interval: float) -> None:
        """`interval`: seconds between two looks."""
        self._pool = pool
        self._schema = schema
        self._interval = interval

    async def begin(self, connection: Connection) -> None:
        """Look before the first fetch. Allow nothing yet if another pool may be dead.

        This process may replace it, and the server may not have noticed its end.
        """
        if self._pool.can_hold:
            try:
                deaths = await self._look(connection)
            except Exception as error:
                logger.debug("held batches are off for now: %s", explained(error))
                return
            if deaths is not None and not deaths.doubtful:
                self._pool.allow_held_batches(deaths.calm_in)

    async def look(self) -> float:
        """Look again; return the seconds until the next time."""
        if not self._pool.can_hold:
            return self._interval
        try:
            deaths = await self._pool.run_statement(self._look)
        except Exception:
            self._pool.allow_held_batches(math.inf)
            raise
        if deaths is None:
            self._pool.allow_held_batches(math.inf)
        elif deaths.unproven:
            self._pool.allow_held_batches(math.inf)
            return PROVEN_AFTER
        else:
            self._pool.allow_held_batches(deaths.calm_in)
        return self._interval

    async def _look(self, connection: Connection) -> Deaths | None:
        try:
            return await look_for_deaths(connection, self._schema, self._pool.id)
        except Exception as error:
            if sqlstate_of(error) not in UNAVAILABLE:
                raise
            logger.debug("held batches are off: %s", explained(error))
            return None


MOST_WAIT = "500"  # milliseconds for a lock: heartbeats wait meanwhile
MOST_TIME = "2000"  # milliseconds for a statement
PAUSES = (0.001,) * 20 + (0.02,) * 50  # seconds; short at first: a held fetch elsewhere may be quick, too


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
        async with bounded_transaction(connection, schema, MOST_TIME, MOST_WAIT):
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
