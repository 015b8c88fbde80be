"""Recurring jobs: listing, pausing, running one now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, cast

from ...database.connections.connection import UserConnection
from ...errors import InvalidArgumentError
from ...values.job import Job
from .base import ClientBase

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ...database.statements.schedules import Schedule
    from ...values.job import Pause
    from ...values.spec import JobSpec


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
        from ...database.statements import schedules

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
        from ...database.statements import schedules

        return await self._manage(
            connection,
            lambda session: schedules.pause_schedule(session, self.schema, identifier, until, reason),
        )

    async def resume_schedule(self, identifier: str, *, connection: UserConnection | None = None) -> bool:
        """End the pause of a recurring job; returns whether it was paused."""
        from ...database.statements import schedules

        return await self._manage(
            connection, lambda session: schedules.resume_schedule(session, self.schema, identifier)
        )

    async def run_schedule_now(self, identifier: str, *, connection: UserConnection | None = None) -> Job:
        """Add the job of a recurring job now, also while it is paused; the next regular run is not affected.

        A running Python worker must have it. `_cron` in the payload has `manual: true`. The job key is the
        one that scheduled jobs have, so a waiting job with the same key is replaced.
        """
        from ...database.statements.schedules import list_schedules, manual_job, note_run

        async with self._connection(connection) as session:
            found = await list_schedules(session, self.schema, identifier=identifier)
        if not found:
            raise InvalidArgumentError("identifier", f"there is no recurring job {identifier!r}")
        spec = manual_job(found[0], self._clock.now().astimezone(UTC))
        job = await cast("AddingOne", self).add_job(spec, connection=connection)
        async with self._connection(connection) as session:
            await note_run(session, self.schema, identifier, job.id)
        return job


class AddingOne(Protocol):
    """The part of a client that running a recurring job needs."""

    async def add_job(self, task: JobSpec, *, connection: UserConnection | None = None) -> Job: ...
