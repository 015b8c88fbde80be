"""`utils.queues`: named queues, their pauses and their of_tasks."""

from __future__ import annotations

import builtins
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...database.connections.connection import BlockingConnection
from ..blocking import SyncMember, blocking
from ..connections import ConnectionT, Member

if TYPE_CHECKING:
    # Methods import these when called: a program that only adds jobs to queues starts without them.
    from ...database.statements.inspection import QueueSummary
    from ...values.job import Pause


class QueuesClient(Member[ConnectionT]):
    """Named queues, whose jobs run one at a time, or as many as the queue is wide.

    A paused queue starts no jobs, in any runtime. Tasks are paused by `WorkerUtils.pause`; `list_pauses`
    lists every pause there is.
    """

    async def list(
        self, *, limit: int = 100, exact: bool = False, connection: ConnectionT | None = None
    ) -> builtins.list[QueueSummary]:
        """Named queues, longest first, with the pools that have locked them.

        Counts are estimated for a large table, unless `exact`.
        """
        from ...database.statements import inspection

        return await self._connections.call(connection, inspection.list_queues, limit=limit, exact=exact)

    async def pause(
        self,
        queue_name: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: ConnectionT | None = None,
    ) -> Pause:
        """Start no more jobs of a named queue, in any runtime, until it is resumed or until a time.

        A running job finishes. `until` is a time, or a period from now. Pausing a paused queue changes the
        terms; one resume ends it.
        """
        from ..changing import pause

        return await pause(self._connections, connection, queue_name=queue_name, until=until, reason=reason)

    async def resume(self, queue_name: str, *, connection: ConnectionT | None = None) -> bool:
        """End the pause of a queue; returns whether it was paused.

        While a job of the queue is still running, the next one waits for it.
        """
        from ..changing import resume

        return await resume(self._connections, connection, queue_name=queue_name)

    async def list_pauses(self, *, connection: ConnectionT | None = None) -> builtins.list[Pause]:
        """What is paused: everything first, then tasks, queues and recurring jobs, by name."""
        from ...database.statements import pauses

        return await self._connections.call(connection, pauses.list_pauses)

    async def set_concurrency(
        self, queue_name: str, concurrency: int | None, *, connection: ConnectionT | None = None
    ) -> None:
        """Let up to `concurrency` jobs of a named queue run at once; None leaves that to its tasks again.

        It takes effect at once and survives restarts. Jobs that run when it is lowered finish. Node workers
        keep it, too.
        """
        from ...database.statements.limits import set_queue_concurrency

        await self._connections.change(connection, set_queue_concurrency, queue_name, concurrency)


class SyncQueuesClient(SyncMember):
    """The blocking form of `QueuesClient`."""

    _member = "queues"

    list = blocking(QueuesClient[BlockingConnection].list, is_long="exact")
    pause = blocking(QueuesClient[BlockingConnection].pause)
    resume = blocking(QueuesClient[BlockingConnection].resume)
    list_pauses = blocking(QueuesClient[BlockingConnection].list_pauses)
    set_concurrency = blocking(QueuesClient[BlockingConnection].set_concurrency)
