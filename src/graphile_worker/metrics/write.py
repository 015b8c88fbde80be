"""Writes the statistics of a pool to the database, every third heartbeat or so, and when the pool ends.

What was counted is added to what is there. If the server refuses a statement, the statistics are kept for the
next one. If it is unknown whether a statement took effect, as after a lost connection, they are dropped:
counts may miss some seconds, but nothing is counted twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import explained, is_surely_undone, sqlstate_of
from ..database.sql import load
from ..values.clock import uptime
from ..values.schema_name import SchemaName
from .counter import MinuteStatistics, StatisticsCounter

LONGEST_INTERVAL = 12.0  # seconds between two writes; a crash loses what was counted since the last one
HEARTBEATS = 3  # between two writes, if that is shorter
UNAVAILABLE = (
    sqlstates.UNDEFINED_TABLE,
    sqlstates.UNDEFINED_COLUMN,
    sqlstates.INVALID_SCHEMA_NAME,
    sqlstates.INSUFFICIENT_PRIVILEGE,
)

logger = logging.getLogger("graphile_worker.statistics")


class StatisticsWriter:
    """Writes what one pool has counted."""

    def __init__(
        self, counter: StatisticsCounter, schema: SchemaName, pool_id: str, *, heartbeat_interval: float
    ) -> None:
        self._counter = counter
        self._schema = schema
        self._pool_id = pool_id
        self.interval = min(LONGEST_INTERVAL, HEARTBEATS * heartbeat_interval)
        """Seconds between two writes."""
        self.has_written = False
        """Whether anything was written so far."""
        self._last_at = uptime()
        self._is_on = True

    @property
    def is_pending(self) -> bool:
        """Whether something was counted and not written yet."""
        return self._is_on and not self._counter.is_empty

    async def write_if_due(self, connection: Connection, timeout: float) -> None:
        """Write, unless that was done a moment ago or nothing was counted."""
        if uptime() - self._last_at > self.interval * 0.9:  # heartbeats are never quite on time
            await self.write(connection, timeout)

    async def write(self, connection: Connection, timeout: float) -> None:
        """Write what was counted; a failure is logged at most."""
        self._last_at = uptime()
        statistics = self._counter.take()
        if not statistics or not self._is_on:
            return
        try:
            await write_minutes(
                connection, self._schema, self._pool_id, statistics, now=self._counter.now(), timeout=timeout
            )
        except Exception as error:
            self._failed(error, statistics)
        else:
            self.has_written = True

    def _failed(self, error: Exception, statistics: list[MinuteStatistics]) -> None:
        if sqlstate_of(error) in UNAVAILABLE:
            self._is_on = False
            self._counter.switch_off()
            logger.warning("statistics are off: %s; jobs run as usual", explained(error))
        elif is_surely_undone(error):
            self._counter.put_back(statistics)
            logger.debug("statistics could not be written and are kept: %s", explained(error))
        else:
            logger.debug("statistics of the last seconds are lost: %s", explained(error))


async def write_minutes(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    statistics: Sequence[MinuteStatistics],
    *,
    now: float | None = None,
    timeout: float | None = None,
) -> None:
    """Add these statistics to those in the database; `now` is by the clock of the minutes, None if right.

    The server moves them by the difference to its own clock, to the nearest minute.
    """
    teach_arrays(connection)
    counted = [each.totals for each in statistics]
    await connection.execute(
        load("statistics/write_minutes", schema),
        pool_id,
        [float(each.minute) for each in statistics],
        [each.task for each in statistics],
        [each.completed for each in counted],
        [each.failed for each in counted],
        [each.permanently_failed for each in counted],
        [each.run_seconds for each in counted],
        [each.wait_seconds for each in counted],
        [each.longest for each in counted],
        [_as_array(each.run_times) for each in counted],
        [_as_array(each.wait_times) for each in counted],
        now,
        timeout=timeout,
    )


def _as_array(counts: list[int]) -> str:
    """An array as PostgreSQL reads it, without trailing zeros."""
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return "{" + ",".join(map(str, counts[:end])) + "}"
