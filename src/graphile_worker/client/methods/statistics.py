"""What workers did, and what was waiting, over time."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...database.connections.connection import Connection
from .base import ClientBase, beginning

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ...history.statistics import BacklogSample, StatisticsGroup, StatisticsList


class ReadingStatistics(ClientBase):
    """Reads statistics and samples."""

    async def task_statistics(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        task_identifier: str | None = None,
        by: StatisticsGroup | Collection[StatisticsGroup] = (),
        connection: Connection | None = None,
    ) -> StatisticsList:
        """What workers of this package did: counts of completed and failed jobs, run times and wait times.

        `since` is a time, or a period before now. `by` groups by "minute", "hour", "task", "pool", or several
        of them; without it there is one row. Minutes are kept for two days and hours for 90 days; a period of
        more than two hours begins with a full hour. Groups without jobs are left out.
        """
        from ...history import statistics

        now = self._clock.now()
        begin = beginning(since, until, now)
        async with self._connection(connection) as session:
            return await statistics.read_statistics(
                session,
                self.schema,
                since=begin,
                until=until,
                now=now,
                task_identifier=task_identifier,
                by=by,
            )

    async def samples(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        connection: Connection | None = None,
    ) -> list[BacklogSample]:
        """Samples of the backlog, one every ten seconds of the last two days, with what all runtimes did."""
        from ...history import statistics

        begin = beginning(since, until, self._clock.now())
        async with self._connection(connection) as session:
            return await statistics.read_samples(session, self.schema, since=begin, until=until)
