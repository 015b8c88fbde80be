"""What one pool does for all: samples of the backlog, folding minutes, deleting what is old.

Each class is a duty: see `recovery/duties.py`.
"""

from __future__ import annotations

from datetime import timedelta

from ..db.connection import Connection
from ..queries.inspection import estimated_counts
from ..schema_name import SchemaName
from ..sql import load

STEP = 5_000  # rows per statement, so that no statement takes long
FOLD_AFTER = timedelta(minutes=2)
MINUTES_KEPT = timedelta(hours=48)
HOURS_KEPT = timedelta(days=90)
SAMPLES_KEPT = timedelta(hours=48)
COUNTED = 1_000  # jobs of one state that a sample counts; more are estimated
ESTIMATED_PAGES = 300  # of the jobs table that an estimate reads


class SampleJobs:
    """Records what is waiting, every ten seconds."""

    name = "samples"
    interval = 10.0

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema

    async def run(self, connection: Connection) -> bool:
        """Add one sample."""
        table = f"{self._schema.quoted}._private_jobs"
        row = await connection.fetchrow(load("figures/look_at_jobs", self._schema), table, COUNTED + 1)
        if row is None:
            return False
        counts = {state: row[state] for state in ("ready", "scheduled", "failed")}
        uncounted = [state for state, count in counts.items() if count > COUNTED]
        if uncounted:
            estimate = await estimated_counts(connection, self._schema, ESTIMATED_PAGES)
            counts |= {state: max(counts[state], getattr(estimate, state)) for state in uncounted}
        await connection.execute(
            load("figures/add_sample", self._schema),
            *(row["added"], row["deleted"], row["updated"], row["live"]),
            *(counts["ready"], counts["scheduled"], counts["failed"]),
            bool(uncounted),
            row["oldest_wait"],
        )
        return False


class FoldMinutes:
    """Folds the figures of pools into one row for each minute and task, and into the hours."""

    name = "minutes"
    interval = 60.0

    def __init__(self, schema: SchemaName, *, after: timedelta = FOLD_AFTER) -> None:
        self._schema = schema
        self._after = after

    async def run(self, connection: Connection) -> bool:
        """Fold some rows; return whether there may be more."""
        count: int = await connection.fetchval(load("figures/fold_minutes", self._schema), self._after, STEP)
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


def figure_duties(schema: SchemaName) -> tuple[SampleJobs, FoldMinutes, DeleteOldFigures]:
    """All duties of this module."""
    return SampleJobs(schema), FoldMinutes(schema), DeleteOldFigures(schema)
