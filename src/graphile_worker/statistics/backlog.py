"""Reads what is waiting in the jobs table, at a cost that does not depend on its size.

A small table is read in full, a large one in part. Only if that finds few ready jobs, or none, they are
counted through the index. Beside a long backlog that would be expensive: the index begins with the entries
of all jobs that ran since the last vacuum.
"""

from __future__ import annotations

import msgspec

from ..db.connection import Connection, Row
from ..schema_name import SchemaName
from ..sql import load

STATES = ("ready", "scheduled", "failed")
COUNTERS = ("added", "deleted", "updated", "live")
SCANNED_PAGES = 200  # of the jobs table
MANY = 5_000  # ready jobs that need not be counted one by one
COUNTED = 1_000  # jobs of one state that are; more are estimated


class Backlog(msgspec.Struct, frozen=True):
    """The jobs table at one moment."""

    added: int
    """Counters of the server for the table, since it began to count."""
    deleted: int
    updated: int
    live: int
    """All jobs, as the server's statistics say."""
    ready: int
    scheduled: int
    failed: int
    """Permanently failed jobs."""
    estimated: frozenset[str]
    """Which of the three counts are estimates."""
    oldest_wait: float
    """Seconds since the oldest ready job could run; 0 if none is ready."""
    locked: int
    """Jobs that workers have locked; an estimate unless the table is small."""
    is_scanned: bool
    """Whether the whole table was read, so that `locked` is exact."""

    @property
    def is_estimate(self) -> bool:
        return bool(self.estimated)

    @property
    def counters(self) -> tuple[int, ...]:
        """They change whenever a job does."""
        return self.added, self.deleted, self.updated, self.live


async def read_backlog(connection: Connection, schema: SchemaName) -> Backlog:
    """What is waiting now."""
    scanned = found = await _read(connection, schema, "scan_jobs", SCANNED_PAGES)
    percentage = scanned["percentage"]
    counts = {state: round(scanned[state] * 100 / percentage) for state in STATES}
    estimated: tuple[str, ...] = STATES if percentage < 100 else ()
    if estimated and counts["ready"] <= MANY:
        estimates = counts
        found = await _read(connection, schema, "look_at_jobs", COUNTED + 1)
        counts = {state: found[state] for state in STATES}
        estimated = tuple(state for state in STATES if counts[state] > COUNTED)
        counts |= {state: max(counts[state], estimates[state]) for state in estimated}
    return Backlog(
        **{counter: found[counter] for counter in COUNTERS},
        **counts,
        estimated=frozenset(estimated),
        oldest_wait=found["oldest_wait"],
        locked=round(scanned["locked"] * 100 / percentage),
        is_scanned=percentage >= 100,
    )


async def _read(connection: Connection, schema: SchemaName, statement: str, limit: int) -> Row:
    table = f"{schema.quoted}._private_jobs"
    (row,) = await connection.fetch(load(f"statistics/{statement}", schema), table, limit)
    return row
