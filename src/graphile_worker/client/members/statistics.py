"""`utils.statistics`: how many jobs there are, what workers did, and what was waiting over time."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...database.connections.connection import BlockingConnection
from ..blocking import SyncMember, blocking
from ..connections import ConnectionT, Member, beginning

if TYPE_CHECKING:
    from ...database.statements.inspection import Statistics
    from ...history.statistics import BacklogSample, StatisticsGroup, StatisticsList


class StatisticsClient(Member[ConnectionT]):
    """Counts of the jobs that are in the queue now, of what workers did, and of what was waiting.

    `jobs` looks at the queue. `tasks` and `samples` read what workers of this package have recorded.
    """

    async def jobs(self, *, exact: bool = False, connection: ConnectionT | None = None) -> Statistics:
        """The number of jobs by state and by task; estimated for a large table, unless `exact`."""
        from ...database.statements import inspection

        return await self._connections.call(connection, inspection.statistics, exact=exact)

    async def tasks(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        task_identifier: str | None = None,
        by: StatisticsGroup | Collection[StatisticsGroup] = (),
        connection: ConnectionT | None = None,
    ) -> StatisticsList:
        """What workers of this package did: counts of completed and failed jobs, run times and wait times.

        `since` is a time, or a period before now. `by` groups by "minute", "hour", "task", "pool", or several
        of them; without it there is one row. Minutes are kept for two days and hours for 90 days; a period of
        more than two hours begins with a full hour. Groups without jobs are left out.
        """
        from ...history import statistics

        now = self._connections.clock.now()
        begin = beginning(since, until, now)
        return await self._connections.call(
            connection,
            statistics.read_statistics,
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
        connection: ConnectionT | None = None,
    ) -> list[BacklogSample]:
        """Samples of the backlog, one every ten seconds of the last two days, with what all runtimes did."""
        from ...history import statistics

        begin = beginning(since, until, self._connections.clock.now())
        return await self._connections.call(connection, statistics.read_samples, since=begin, until=until)


class SyncStatisticsClient(SyncMember):
    """The blocking form of `StatisticsClient`."""

    _member = "statistics"

    jobs = blocking(StatisticsClient[BlockingConnection].jobs, is_long="exact")
    tasks = blocking(StatisticsClient[BlockingConnection].tasks)
    samples = blocking(StatisticsClient[BlockingConnection].samples)
