"""What one pool does for all: samples of the backlog, folding minutes, deleting what is old.

Each class is a duty: see `recovery/duties.py`.
"""

from __future__ import annotations

from datetime import timedelta

from ..db.connection import Connection, Row
from ..queries.inspection import jobs_table_pages
from ..schema_name import SchemaName
from ..sql import load

STEP = 5_000  # rows per statement, so that no statement takes long
FOLD_AFTER = timedelta(minutes=2)
MINUTES_KEPT = timedelta(hours=48)
HOURS_KEPT = timedelta(days=90)
SAMPLES_KEPT = timedelta(hours=48)
STATES = ("ready", "scheduled", "failed")
SCANNED_PAGES = 200  # of the jobs table that a sample reads
MANY = 5_000  # ready jobs that need not be counted one by one
COUNTED = 1_000  # jobs of one state that are; more are estimated


class SampleJobs:
    """Records what is waiting, every ten seconds.

    A small table is read in full, a large one in part. Only if that finds few ready jobs, or none, they are
    counted through the index. Beside a long backlog that would be expensive: the index begins with the
    entries of all jobs that ran since the last vacuum.
    """

    name = "samples"
    interval = 10.0

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema
        self._table = f"{schema.quoted}._private_jobs"

    async def run(self, connection: Connection) -> bool:
        """Add one sample."""
        pages = await jobs_table_pages(connection, self._schema)
        percentage = 100.0 if pages <= SCANNED_PAGES else 100.0 * SCANNED_PAGES / pages
        found = await self._read(connection, "scan_jobs", percentage)
        counts = {state: round(found[state] * 100 / percentage) for state in STATES}
        is_estimate = percentage < 100
        if is_estimate and counts["ready"] <= MANY:
            estimates = counts
            found = await self._read(connection, "look_at_jobs", COUNTED + 1)
            counts = {state: found[state] for state in STATES}
            uncounted = [state for state in STATES if counts[state] > COUNTED]
            counts |= {state: max(counts[state], estimates[state]) for state in uncounted}
            is_estimate = bool(uncounted)
        await connection.execute(
            load("figures/add_sample", self._schema),
            *(found[counter] for counter in ("added", "deleted", "updated", "live")),
            *(counts[state] for state in STATES),
            is_estimate,
            found["oldest_wait"],
        )
        return False

    async def _read(self, connection: Connection, statement: str, limit: float) -> Row:
        (row,) = await connection.fetch(load(f"figures/{statement}", self._schema), self._table, limit)
        return row


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
