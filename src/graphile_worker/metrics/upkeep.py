"""What one pool does for all: samples of the backlog, folding minutes and hours, deleting what is old.

Each class is a maintenance task: see `recovery/maintenance.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from ..database.connections.connection import Connection
from ..database.sql import load
from ..values.schema_name import SchemaName
from .backlog import read_backlog

STEP = 5_000  # rows per statement, so that no statement takes long
FOLD_AFTER = timedelta(minutes=2)
FOLD_DAYS_AFTER = timedelta(hours=6)
"""After their end. Statistics that come later are folded by the next times, for `FOLD_DAYS_AGAIN`."""
FOLD_DAYS_AGAIN = timedelta(days=2)
FOLDED_DAYS = timedelta(days=10)  # per statement
MINUTES_KEPT = timedelta(hours=48)
HOURS_KEPT = timedelta(days=90)
DAYS_KEPT = HOURS_KEPT
SAMPLES_KEPT = timedelta(hours=48)
Activity = Callable[[], bool]
"""Whether this pool has run jobs lately."""


class SampleJobs:
    """Records what is waiting: every ten seconds, and every minute while nothing happens."""

    name = "samples"

    def __init__(self, schema: SchemaName, is_active: Activity = lambda: True) -> None:
        self._schema = schema
        self._is_active = is_active
        self._counters: tuple[int, ...] = ()
        self._has_changed = False

    @property
    def interval(self) -> float:
        """Short if this pool runs jobs, or if the jobs table has changed since the sample before."""
        return 10.0 if self._has_changed or self._is_active() else 60.0

    async def run(self, connection: Connection) -> bool:
        """Add one sample."""
        found = await read_backlog(connection, self._schema)
        self._has_changed, self._counters = found.counters != self._counters, found.counters
        await connection.execute(
            load("statistics/add_sample", self._schema),
            *found.counters,
            found.ready,
            found.scheduled,
            found.failed,
            found.is_estimate,
            found.oldest_wait,
        )
        return False


class FoldMinutes:
    """Folds the statistics of pools into one row for each minute and task, and into the hours."""

    name = "minutes"

    def __init__(
        self, schema: SchemaName, is_active: Activity = lambda: True, *, after: timedelta = FOLD_AFTER
    ) -> None:
        self._schema = schema
        self._is_active = is_active
        self._after = after
        self._found_some = False

    @property
    def interval(self) -> float:
        """Longer while there is nothing to fold."""
        return 60.0 if self._found_some or self._is_active() else 300.0

    async def run(self, connection: Connection) -> bool:
        """Fold some rows; return whether there may be more."""
        count: int = await connection.fetchval(
            load("statistics/fold_minutes", self._schema), self._after, STEP
        )
        self._found_some = count > 0
        return count >= STEP


class FoldHours:
    """Folds the hours of days that are over into one row for each day and task, and deletes old days.

    Where there are hours and no days yet, as after an upgrade, it folds all of them.
    """

    name = "days"
    interval = 3600.0

    def __init__(self, schema: SchemaName, *, after: timedelta = FOLD_DAYS_AFTER) -> None:
        self._schema = schema
        self._after = after

    async def run(self, connection: Connection) -> bool:
        """Fold some days; return whether there may be more."""
        if not await connection.fetchval(load("statistics/has_days", self._schema), self._schema.name):
            return False  # not migrated yet, or without rights: statistics are read from the hours
        statement = load("statistics/fold_hours", self._schema)
        has_more: bool = await connection.fetchval(statement, self._after, FOLD_DAYS_AGAIN, FOLDED_DAYS)
        if not has_more:
            await connection.execute(load("statistics/delete_old_days", self._schema), DAYS_KEPT)
        return has_more


class DeleteOldStatistics:
    """Deletes statistics and samples after a while."""

    name = "old statistics"
    interval = 900.0

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema

    async def run(self, connection: Connection) -> bool:
        """Delete some rows; return whether there may be more."""
        statement = load("statistics/delete_old", self._schema)
        count: int = await connection.fetchval(statement, MINUTES_KEPT, HOURS_KEPT, SAMPLES_KEPT, STEP)
        return count >= STEP


def statistics_maintenance(
    schema: SchemaName, is_active: Activity
) -> tuple[SampleJobs, FoldMinutes, FoldHours, DeleteOldStatistics]:
    """All maintenance tasks of this module."""
    return (
        SampleJobs(schema, is_active),
        FoldMinutes(schema, is_active),
        FoldHours(schema),
        DeleteOldStatistics(schema),
    )
