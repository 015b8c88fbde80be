"""Pausing queues, tasks and everything."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...database.connections.connection import UserConnection
from ...errors import InvalidArgumentError
from ...values.spec import TaskLike
from .base import ClientBase

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ...values.job import Pause


class Pausing(ClientBase):
    """Pauses and resumes."""

    async def pause_queue(
        self,
        queue_name: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> Pause:
        """Start no more jobs of a named queue, in any runtime, until it is resumed or until a time.

        A running job goes on. `until` is a time, or a period from now. Pausing a paused queue changes the
        terms; one resume ends it.
        """
        from ...database.statements import pauses

        return await self._manage(
            connection, lambda session: pauses.pause_queue(session, self.schema, queue_name, until, reason)
        )

    async def pause_task(
        self,
        task: str | TaskLike[Any, Any],
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> Pause:
        """Start no more jobs of a task in Python workers; the rest as in `pause_queue`.

        Node and Rust workers that have the task do not know of it.
        """
        from ...database.statements import pauses

        identifier = task if isinstance(task, str) else task.identifier
        if not identifier:
            raise InvalidArgumentError("task", "must not be empty; to pause every task, use pause_all")
        return await self._manage(
            connection, lambda session: pauses.pause_task(session, self.schema, identifier, until, reason)
        )

    async def pause_all(
        self,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> Pause:
        """Start no more jobs at all in Python workers; the rest as in `pause_task`."""
        from ...database.statements import pauses

        return await self._manage(
            connection,
            lambda session: pauses.pause_task(session, self.schema, pauses.EVERY_TASK, until, reason),
        )

    async def resume_queue(self, queue_name: str, *, connection: UserConnection | None = None) -> bool:
        """End the pause of a queue; returns whether it was paused.

        While a job of the queue is still running, the next one waits for it.
        """
        from ...database.statements import pauses

        return await self._manage(
            connection, lambda session: pauses.resume_queue(session, self.schema, queue_name)
        )

    async def resume_task(
        self, task: str | TaskLike[Any, Any], *, connection: UserConnection | None = None
    ) -> bool:
        """End the pause of a task; returns whether it was paused by itself."""
        from ...database.statements import pauses

        identifier = task if isinstance(task, str) else task.identifier
        if not identifier:
            raise InvalidArgumentError("task", "must not be empty; to resume every task, use resume_all")
        return await self._manage(
            connection, lambda session: pauses.resume_task(session, self.schema, identifier)
        )

    async def resume_all(self, *, connection: UserConnection | None = None) -> bool:
        """End what `pause_all` began; tasks and queues that were paused by themselves stay paused."""
        from ...database.statements import pauses

        return await self._manage(
            connection, lambda session: pauses.resume_task(session, self.schema, pauses.EVERY_TASK)
        )

    async def list_pauses(self, *, connection: UserConnection | None = None) -> list[Pause]:
        """What is paused: everything first, then tasks, queues and recurring jobs, by name."""
        from ...database.statements import pauses

        async with self._connection(connection) as session:
            return await pauses.list_pauses(session, self.schema)
