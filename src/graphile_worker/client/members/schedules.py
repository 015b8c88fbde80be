"""`utils.schedules`: recurring jobs."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ...database.connections.connection import BlockingConnection
from ...errors import InvalidArgumentError
from ...values.job import Job
from ..blocking import SyncMember, blocking
from ..connections import ClientConnections, ConnectionT, Member

if TYPE_CHECKING:
    from ...database.statements.schedules import Schedule
    from ...values.job import Pause


class SchedulesClient(Member[ConnectionT]):
    """Recurring jobs, by their identifiers.

    Running Python workers tell what each of them is. Of those that only other runtimes have, the database
    knows no more than when a job was last added.
    """

    def __init__(self, connections: ClientConnections, add_job: Callable[..., Awaitable[Job]]) -> None:
        super().__init__(connections)
        self._add_job = add_job

    async def list(
        self,
        identifier: str | None = None,
        *,
        after: str | None = None,
        limit: int = 500,
        connection: ConnectionT | None = None,
    ) -> builtins.list[Schedule]:
        """Recurring jobs by identifier, those after `after`; or one of them, if there is one."""
        from ...database.statements import schedules

        return await self._connections.call(
            connection, schedules.list_schedules, identifier=identifier, after=after, limit=limit
        )

    async def pause(
        self,
        identifier: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: ConnectionT | None = None,
    ) -> Pause:
        """Add no more jobs of a recurring job, until a time, for a period, or until `resume`.

        What comes due during the pause is skipped, and not backfilled. Only workers of this package obey.
        """
        from ...database.statements import schedules

        return await self._connections.change(connection, schedules.pause_schedule, identifier, until, reason)

    async def resume(self, identifier: str, *, connection: ConnectionT | None = None) -> bool:
        """End the pause of a recurring job; returns whether it was paused."""
        from ...database.statements import schedules

        return await self._connections.change(connection, schedules.resume_schedule, identifier)

    async def run_now(self, identifier: str, *, connection: ConnectionT | None = None) -> Job:
        """Add the job of a recurring job now, also while it is paused; the next regular run is not affected.

        A running Python worker must have it. `_cron` in the payload has `manual: true`. The job key is the
        one that scheduled jobs have, so a waiting job with the same key is replaced.
        """
        from ...database.statements.schedules import list_schedules, manual_job, note_run

        connections = self._connections
        async with connections.borrow(connection) as session:
            found = await list_schedules(session, connections.schema, identifier=identifier)
        if not found:
            raise InvalidArgumentError("identifier", f"there is no recurring job {identifier!r}")
        spec = manual_job(found[0], connections.clock.now().astimezone(UTC))
        job = await self._add_job(spec, connection=connection)
        async with connections.borrow(connection) as session:
            await note_run(session, connections.schema, identifier, job.id)
        return job


class SyncSchedulesClient(SyncMember):
    """The blocking form of `SchedulesClient`."""

    _member = "schedules"

    list = blocking(SchedulesClient[BlockingConnection].list)
    pause = blocking(SchedulesClient[BlockingConnection].pause)
    resume = blocking(SchedulesClient[BlockingConnection].resume)
    run_now = blocking(SchedulesClient[BlockingConnection].run_now)
