"""What one pool does for all: samples of the backlog, folding minutes, deleting what is old.

Each class is a duty: see `recovery/duties.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from ..db.connection import Connection, Row
from ..schema_name import SchemaName
from ..sql import load

STEP = 5_000  # rows per statement, so that no statement takes long
FOLD_AFTER = timedelta(minutes=2)
MINUTES_KEPT = timedelta(hours=48)
HOURS_KEPT = timedelta(days=90)
SAMPLES_KEPT = timedelta(hours=48)
STATES = ("ready", "scheduled", "failed")
COUNTERS = ("added", "deleted", "updated", "live")
SCANNED_PAGES = 200  # of the jobs table that a sample reads
MANY = 5_000  # ready jobs that need not be counted one by one
COUNTED = 1_000  # jobs of one state that are; more are estimated
Activity = Callable[[], bool]
"""Whether this pool has run jobs lately."""


class SampleJobs:
    """Records what is waiting: every ten seconds, and every minute while nothing happens.

    A small table is read in full, a large one in part. Only if that finds few ready jobs, or none, they are
    counted through the index. Beside a long backlog that would be expensive: the index begins with the
    entries of all jobs that ran since the last vacuum.
    """

    name = "samples"

    def __init__(self, schema: SchemaName, is_active: Activity = lambda: True) -> None:
        self._schema = schema
        self._is_active = is_active
        self._counters: tuple[int, ...] = ()
        self._has_changed = False
        self._table = f"{schema.quoted}._private_jobs"

    @property
    def interval(self) -> float:
        """Short if this pool runs jobs, or if the jobs table has changed since the sample before."""
        return 10.0 if self._has_changed or self._is_active() else 60.0

    async def run(self, connection: Connection) -> bool:
        """Add one sample."""
        found = await self._read(connection, "scan_jobs", SCANNED_PAGES)
        percentage = found["percentage"]
        counts = {state: round(found[state] * 100 / percentage) for state in STATES}
        is_estimate = percentage < 100
        if is_estimate and counts["ready"] <= MANY:
            estimates = counts
            found = await self._read(connection, "look_at_jobs", COUNTED + 1)
            counts = {state: found[state] for state in STATES}
            uncounted = [state for state in STATES if counts[state] > COUNTED]
            counts |= {state: max(counts[state], estimates[state]) for state in uncounted}
            is_estimate = bool(uncounted)
        counters = tuple(found[counter] for counter in COUNTERS)
        self._has_changed, self._counters = counters != self._counters, counters
        await connection.execute(
            load("figures/add_sample", self._schema),
            *counters,
            *(counts[state] for state in STATES),
            is_estimate,
            found["oldest_wait"],
        )
        return False

    async def _read(self, connection: Connection, statement: str, limit: int) -> Row:
        (row,) = await connection.fetch(load(f"figures/{statement}", self._schema), self._table, limit)
        return row


class FoldMinutes:
    """Folds the figures of pools into one row for each minute and task, and into the hours."""

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
        count: int = await connection.fetchval(load("figures/fold_minutes", self._schema), self._after, STEP)
        self._found_some = count > 0
        return count >= STEP


class DeleteOldFigures:
    """Deletes figures and samples after a while."""

    name = "old figures"
    interval = 900.0

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema

    async def run(self, connection: Connection) -> bool:
        """Delete some rows; return whether there may be more."""
        statement = load("figures/delete_old", self._schema)
        count: int = await connection.fetchval(statement, MINUTES_KEPT, HOURS_KEPT, SAMPLES_KEPT, STEP)
        return count >= STEP


def figure_duties(
    schema: SchemaName, is_active: Activity
) -> tuple[SampleJobs, FoldMinutes, DeleteOldFigures]:
    """All duties of this module."""
    return SampleJobs(schema, is_active), FoldMinutes(schema, is_active), DeleteOldFigures(schema)
