"""The blocking `utils.schedules`: recurring jobs.

Written by `make reference` from `members/schedules.py`: change that file, not this one.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..sync_calls import SyncCalls

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ...database.connections.connection import BlockingConnection
    from ...database.statements.schedules import Schedule
    from ...values.job import Job, Pause


class SyncSchedulesClient:
    """Recurring jobs, by their identifiers.

    Running Python workers tell what each of them is. Of those that only other runtimes have, the database
    knows no more than when a job was last added.
    """

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(
        self,
        identifier: str | None = None,
        *,
        after: str | None = None,
        limit: int = 500,
        connection: BlockingConnection | None = None,
    ) -> builtins.list[Schedule]:
        """Recurring jobs by identifier, those after `after`; or one of them, if there is one."""
        return self._calls.run(
            connection, lambda utils: utils.schedules.list(identifier, after=after, limit=limit)
        )

    def pause(
        self,
        identifier: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> Pause:
        """Add no more jobs of a recurring job, until a time, for a period, or until `resume`.

        What becomes due during the pause is skipped, and not made up for. Only workers of this package obey.
        """
        return self._calls.run(
            connection, lambda utils: utils.schedules.pause(identifier, until=until, reason=reason)
        )

    def resume(self, identifier: str, *, connection: BlockingConnection | None = None) -> bool:
        """End the pause of a recurring job; returns whether it was paused."""
        return self._calls.run(connection, lambda utils: utils.schedules.resume(identifier))

    def run_now(self, identifier: str, *, connection: BlockingConnection | None = None) -> Job:
        """Add the job of a recurring job now, also while it is paused; the next regular run is not affected.

        A running Python worker must have it. `_cron` in the payload has `manual: true`. The job key is the
        one that scheduled jobs have, so a waiting job with the same key is replaced.
        """
        return self._calls.run(connection, lambda utils: utils.schedules.run_now(identifier))
