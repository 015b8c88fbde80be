"""Sampler: reads the state of the queue in few statements whose cost does not depend on its size."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from datetime import datetime

import msgspec

from ...database.sql import load
from ...metrics.backlog import Backlog, read_backlog
from ...metrics.database_reader import count_pools
from ..answers import Count
from ..database import WORKERS, Database

KEPT = 720
"""Samples in memory: an hour, at five seconds."""
RATES_OVER = 60.0
"""Seconds before now whose samples give the rates; the server's counters lag by some seconds."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the queue at one moment, as the sampler found it."""

    at: datetime
    ready: Count
    scheduled: Count
    failed: Count
    """Permanently failed jobs."""
    running: Count
    """Jobs that workers of all runtimes have started, as far as it is known."""
    oldest_wait: float
    """Seconds since the oldest ready job could run."""
    workers: int | None = None
    """Python pools that are alive; None if their table is missing."""
    unreachable: int = 0
    """Python pools that miss their heartbeats."""
    slots: int | None = None
    added_per_minute: float | None = None
    """By all runtimes; None until two samples are far enough apart."""
    deleted_per_minute: float | None = None
    """Jobs that completed or were removed, by all runtimes."""
    failed_per_minute: float | None = None
    """Failed attempts, worked out from the server's counters."""
    counters: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Of the server for the jobs table: added, deleted, updated, live."""


class Sampler:
    """Takes samples of one database and keeps those of the last hour."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.tables: frozenset[str] = frozenset()
        """The Python-only tables that can be read; empty before the first sample."""
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.versions: dict[int, str] = {}
        """Of the jobs that were asked for last."""

    async def take(self, job_ids: Collection[int] = ()) -> Sample:
        """Take a sample, and the versions of these jobs."""
        database = self._database
        async with database.read() as connection:
            self.tables = await database.own_tables(connection)
            backlog = await read_backlog(connection, database.schema)
            workers = await count_pools(connection, database.schema) if WORKERS in self.tables else None
            if job_ids:
                rows = await connection.fetch(load("admin/job_versions", database.schema), list(job_ids))
                self.versions = {row["id"]: row["version"] for row in rows}
        sample = self._sample(backlog, workers)
        self.samples.append(sample)
        return sample

    def _sample(self, backlog: Backlog, workers: dict[str, int] | None) -> Sample:
        now = self._database.clock.now()
        counters = (backlog.added, backlog.deleted, backlog.updated, backlog.live)
        added, deleted, failed = self._rates(now, counters)

        def count(state: str, value: int) -> Count:
            return Count(value, "estimate" if state in backlog.estimated else "exact")

        return Sample(
            at=now,
            ready=count("ready", backlog.ready),
            scheduled=count("scheduled", backlog.scheduled),
            failed=count("failed", backlog.failed),
            running=_running(backlog, workers),
            oldest_wait=backlog.oldest_wait,
            workers=None if workers is None else workers["alive"],
            unreachable=0 if workers is None else workers["unreachable"],
            slots=None if workers is None else workers["slots"],
            added_per_minute=added,
            deleted_per_minute=deleted,
            failed_per_minute=failed,
            counters=counters,
        )

    def _rates(
        self, now: datetime, counters: tuple[int, int, int, int]
    ) -> tuple[float, float, float] | tuple[None, None, None]:
        """Jobs added, deleted and failed per minute. Each lock and each failure is an update.

        Jobs that completed in a held batch were never updated, so with them the true number of failures is
        higher.
        """
        unknown = None, None, None
        recent = [each for each in self.samples if 0 < (now - each.at).total_seconds() <= RATES_OVER + 15]
        if not recent:
            return unknown
        first = recent[0]
        seconds = (now - first.at).total_seconds()
        added, deleted, updated = (counters[place] - first.counters[place] for place in range(3))
        if seconds < RATES_OVER / 3 or min(added, deleted, updated) < 0:  # after a restart of the server
            return unknown
        per_minute = 60 / seconds
        return added * per_minute, deleted * per_minute, max(updated - deleted, 0) / 2 * per_minute


def _running(backlog: Backlog, workers: dict[str, int] | None) -> Count:
    """Jobs of other runtimes are known only by their locks. Pools may have jobs that they have not locked."""
    if workers is None:
        return Count(backlog.locked, "exact" if backlog.is_scanned else "estimate")
    if backlog.is_scanned:
        others = backlog.locked - workers["held"]
        return Count(workers["running"] + max(others, 0), "exact" if others >= 0 else "at_least")
    return Count(workers["running"])
