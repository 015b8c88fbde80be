"""The blocking `utils.queues`: named queues, their pauses and their of_tasks.

Written by `make reference` from `members/queues.py`: change that file, not this one.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..sync_calls import SyncCalls

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ...database.connections.connection import BlockingConnection
    from ...database.statements.inspection import QueueSummary
    from ...values.job import Pause


class SyncQueuesClient:
    """Named queues, whose jobs run one at a time, or as many as the queue is wide.

    A paused queue starts no jobs, in any runtime. Tasks are paused by `SyncWorkerUtils.pause`; `list_pauses`
    lists every pause there is.
    """

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(
        self, *, limit: int = 100, exact: bool = False, connection: BlockingConnection | None = None
    ) -> builtins.list[QueueSummary]:
        """Named queues, longest first, with the pools that have locked them.

        Counts are estimated for a large table, unless `exact`.
        """
        return self._calls.run(
            connection, lambda utils: utils.queues.list(limit=limit, exact=exact), is_long=exact
        )

    def pause(
        self,
        queue_name: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> Pause:
        """Start no more jobs of a named queue, in any runtime, until it is resumed or until a time.

        A running job goes on. `until` is a time, or a period from now. Pausing a paused queue changes the
        terms; one resume ends it.
        """
        return self._calls.run(
            connection, lambda utils: utils.queues.pause(queue_name, until=until, reason=reason)
        )

    def resume(self, queue_name: str, *, connection: BlockingConnection | None = None) -> bool:
        """End the pause of a queue; returns whether it was paused.

        While a job of the queue is still running, the next one waits for it.
        """
        return self._calls.run(connection, lambda utils: utils.queues.resume(queue_name))

    def list_pauses(self, *, connection: BlockingConnection | None = None) -> builtins.list[Pause]:
        """What is paused: everything first, then tasks, queues and recurring jobs, by name."""
        return self._calls.run(connection, lambda utils: utils.queues.list_pauses())

    def set_concurrency(
        self, queue_name: str, concurrency: int | None, *, connection: BlockingConnection | None = None
    ) -> None:
        """Let up to `concurrency` jobs of a named queue run at once; None leaves that to its tasks again.

        It takes effect at once and survives restarts. Jobs that run when it is lowered go on. Node workers
        keep it, too.
        """
        return self._calls.run(
            connection, lambda utils: utils.queues.set_concurrency(queue_name, concurrency)
        )
