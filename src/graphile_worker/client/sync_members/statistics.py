"""The blocking `utils.statistics`: how many jobs there are, what workers did, and what was waiting over time.

Written by `make reference` from `members/statistics.py`: change that file, not this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sync_calls import SyncCalls

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime, timedelta

    from ...database.connections.connection import BlockingConnection
    from ...database.statements.inspection import Statistics
    from ...history.statistics import BacklogSample, StatisticsGroup, StatisticsList


class SyncStatisticsClient:
    """Counts of the jobs that are in the queue now, of what workers did, and of what was waiting.

    `jobs` looks at the queue. `tasks` and `samples` read what workers of this package have recorded.
    """

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def jobs(self, *, exact: bool = False, connection: BlockingConnection | None = None) -> Statistics:
        """The number of jobs by state and by task; estimated for a large table, unless `exact`."""
        return self._calls.run(connection, lambda utils: utils.statistics.jobs(exact=exact), is_long=exact)

    def tasks(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        task_identifier: str | None = None,
        by: StatisticsGroup | Collection[StatisticsGroup] = (),
        connection: BlockingConnection | None = None,
    ) -> StatisticsList:
        """What workers of this package did: counts of completed and failed jobs, run times and wait times.

        `since` is a time, or a period before now. `by` groups by "minute", "hour", "task", "pool", or several
        of them; without it there is one row. Minutes are kept for two days and hours for 90 days; a period of
        more than two hours begins with a full hour. Groups without jobs are left out.
        """
        return self._calls.run(
            connection,
            lambda utils: utils.statistics.tasks(
                since=since, until=until, task_identifier=task_identifier, by=by
            ),
        )

    def samples(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        connection: BlockingConnection | None = None,
    ) -> list[BacklogSample]:
        """Samples of the backlog, one every ten seconds of the last two days, with what all runtimes did."""
        return self._calls.run(connection, lambda utils: utils.statistics.samples(since=since, until=until))
