"""HoldGuard: while a death of a worker is fresh, this pool holds no batches.

A job that kills its process while it is held leaves no trace on its row: the transaction is rolled back, and
the next worker would take it into a held batch too. So after a death without a goodbye all pools lock jobs in
the ordinary way for a while. The next process that the job kills has locked it, and the recovery counts.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from typing import NamedTuple, Protocol

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.errors import explained, sqlstate_of
from ..database.sql import load
from ..values.schema_name import SchemaName
from .sweep import StatementRunner

FRESH = 60.0  # seconds after its sweep for which a death counts
PROVEN_AFTER = 0.5  # seconds: the server has noticed the end of a process, and a new pool has its lock
UNREADABLE = (sqlstates.UNDEFINED_TABLE, sqlstates.INVALID_SCHEMA_NAME, sqlstates.INSUFFICIENT_PRIVILEGE)
"""The schema's owner has not run this version's migration, or this role may not read the table."""

logger = logging.getLogger("graphile_worker.recovery")


class HoldingPool(Protocol):
    """The part of a worker pool that the guard uses."""

    id: str

    @property
    def can_hold(self) -> bool: ...

    def allow_held_batches(self, after: float = 0.0) -> None: ...


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

    def __init__(
        self, pool: HoldingPool, run: StatementRunner, schema: SchemaName, *, interval: float
    ) -> None:
        """`interval`: seconds between two looks."""
        self._pool = pool
        self._run = run
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
                logger.debug("this worker holds no batches yet: %s", explained(error))
                return
            if deaths is not None and not deaths.doubtful:
                self._pool.allow_held_batches(deaths.calm_in)

    async def look(self) -> float:
        """Look again; return the seconds until the next time."""
        if not self._pool.can_hold:
            return self._interval
        try:
            deaths = await self._run(self._look)
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
            if sqlstate_of(error) not in UNREADABLE:
                raise
            logger.debug("this worker holds no batches: %s", explained(error))
            return None
