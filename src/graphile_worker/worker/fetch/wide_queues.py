"""WideQueues: makes the tracks of wide queues, and tells the fetchers of a pool whether there are any.

`@task(queue_concurrency=3)` names no queue, so tracks are made when a job of such a task was fetched, however
it was added. A clean-up of any runtime may delete idle tracks; so the queues in use are looked at from time
to time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from ...database.connections import sqlstates
from ...database.connections.errors import sqlstate_of
from ...database.statements.limits import set_tracks
from ...database.statements.manage_jobs import yielding_locks
from ...errors.text import message_of
from ...tasks.task import AnyTask
from ...values.job import Job
from ..context import BackgroundTasks, JobTakers, PoolContext
from ..session import Sessions

LOOK_AGAIN_AFTER = 30.0  # seconds
AT_ONCE = 1000  # queues per statement
REFUSED = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE, sqlstates.UNDEFINED_FUNCTION)

logger = logging.getLogger("graphile_worker.worker")


class WideQueues:
    """The wide queues of one pool."""

    def __init__(
        self,
        context: PoolContext,
        sessions: Sessions,
        background: BackgroundTasks,
        lanes: JobTakers,
        tasks: Mapping[str, AnyTask],
    ) -> None:
        self._sessions = sessions
        self._schema = context.schema
        self._background = background
        self._lanes = lanes
        self._of_tasks = {
            name: task.rules.queue_concurrency
            for name, task in tasks.items()
            if task.rules.queue_concurrency is not None
        }
        self._known: set[int] = set()  # queues that have their tracks
        self._wanted: dict[int, int | None] = {}
        self._is_making = False
        self._is_on = True  # False if this role may not make tracks
        self.is_wide = False
        """Whether there are queues that may run several jobs at once, as far as is known."""
        self._looked_at = time.monotonic()

    def apply(self, is_wide: bool) -> None:
        """Learn whether there are wide queues; called every few seconds while there are."""
        if is_wide != self.is_wide:
            self.is_wide = is_wide
            self._lanes.pulse()  # the notification of new tracks may have come before
        now = time.monotonic()
        if now - self._looked_at > LOOK_AGAIN_AFTER:
            self._looked_at = now
            self._known.clear()
            if is_wide:
                self.notice(self._sessions.locked_jobs.jobs.values())

    def notice(self, jobs: Iterable[Job]) -> None:
        """Make the tracks of the queues of these jobs, if any are missing; fetchers call it with all jobs."""
        if not self._is_on or not (self.is_wide or self._of_tasks):
            return
        known, wanted, of_tasks = self._known, self._wanted, self._of_tasks
        for job in jobs:
            queue_id = job.job_queue_id
            if queue_id is None or queue_id in known:
                continue
            concurrency = of_tasks.get(job.task_identifier)
            if concurrency is not None or self.is_wide:
                known.add(queue_id)
                wanted[queue_id] = concurrency
        if wanted and not self._is_making:
            self._is_making = True
            self._background.start(self._make(), "wide queues")

    async def _make(self) -> None:
        try:
            while self._wanted:
                chosen = dict(list(self._wanted.items())[:AT_ONCE])
                for queue_id in chosen:
                    del self._wanted[queue_id]
                await self._set_tracks(chosen)
        finally:
            self._is_making = False

    async def _set_tracks(self, chosen: dict[int, int | None]) -> None:
        try:
            changed = await self._sessions.run(
                lambda connection: yielding_locks(
                    connection, self._schema, lambda: set_tracks(connection, self._schema, chosen)
                )
            )
        except Exception as error:
            if sqlstate_of(error) in REFUSED:
                self._is_on = False
                logger.warning(
                    "this worker cannot set the concurrency of queues (%s), so their jobs run one at a time; "
                    "run workers as the owner of the schema",
                    message_of(error),
                )
            else:
                self._known.difference_update(chosen)
                logger.warning(
                    "the concurrency of queues could not be set and will be later: %s", message_of(error)
                )
            return
        if changed:
            self.apply(True)
