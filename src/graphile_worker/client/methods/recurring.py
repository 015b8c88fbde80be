"""Recurring jobs: listing, pausing, running one now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from ...db.connection import UserConnection
from ...job import Job
from .base import ClientBase

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ...pauses import Pause
    from ...queries.schedules import Schedule
    from ..worker_utils import WorkerUtils


class RecurringJobs(ClientBase):
    """Lists and controls recurring jobs."""

    async def list_schedules(
        self,
        identifier: str | None = None,
        *,
        after: str | None = None,
        limit: int = 500,
        connection: UserConnection | None = None,
    ) -> list[Schedule]:
        """Recurring jobs by identifier, those after `after`; or one of them, if there is one.

        Running Python workers tell what each is. Of those that only other runtimes have, the database knows
        no more than when a job was last added.
        """
        from ...queries import schedules

        async with self._connection(connection) as session:
            return await schedules.list_schedules(
                session, self.schema, identifier=identifier, after=after, limit=limit
            )

    async def pause_schedule(
        self,
        identifier: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> Pause:
        """Add no more jobs of a recurring job, until a time, for a period, or until `resume_schedule`.

        What becomes due during the pause is skipped, and not made up for. Only workers of this package obey.
        """
        from ...queries import schedules

        return await self._manage(
            connection,
            lambda session: schedules.pause_schedule(session, self.schema, identifier, until, reason),
        )

    async def resume_schedule(self, identifier: str, *, connection: UserConnection | None = None) -> bool:
        """End the pause of a recurring job; returns whether it was paused."""
        from ...queries import schedules

        return await self._manage(
            connection, lambda session: schedules.resume_schedule(session, self.schema, identifier)
        )

    async def run_schedule_now(self, identifier: str, *, connection: UserConnection | None = None) -> Job:
        """Add the job of a recurring job now, also while it is paused; the next regular run is not affected.

        A running Python worker must have it. `_cron` in the payload has `manual: true`. The job key is the
        one that scheduled jobs have, so a waiting job with the same key is replaced.
        """
        from ..schedules import run_now

        return await run_now(cast("WorkerUtils", self), identifier, self._clock.now(), connection)
