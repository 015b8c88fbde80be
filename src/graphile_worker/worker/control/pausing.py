"""Pausing: keeps paused tasks and queues from starting jobs in one pool.

The fetchers leave paused tasks out. Jobs that were locked before the pool learnt of a pause, and have not
been started, are returned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ...db.errors import explained, sqlstate_of
from ...db.retry import is_retryable
from ...hooks.events import PoolPaused, PoolResumed
from ...job import Job
from ...pauses import Pause
from ...queries.control import EVERY_TASK, ControlState, paused_jobs
from ...queries.pauses import end_due_pauses
from ...text import count
from ..context import PoolContext
from ..lanes import Lanes
from ..session.session import Sessions

logger = logging.getLogger("graphile_worker.worker")


class PauseWatch:
    """What is paused, as far as the pool knows."""

    def __init__(self, context: PoolContext, sessions: Sessions, lanes: Lanes) -> None:
        self._context = context
        self._sessions = sessions
        self._lanes = lanes
        self._paused_queues: frozenset[int] = frozenset()
        self._is_refused = False
        self.pauses: frozenset[Pause] = frozenset()
        self.tasks: frozenset[str] = frozenset()
        """Identifiers of paused tasks; `EVERY_TASK` among them if all are."""

    def apply(self, state: ControlState) -> None:
        """Obey the pauses of this state, and tell observers what has changed."""
        is_known = state.pauses == self.pauses and state.paused_queues == self._paused_queues
        if is_known and state.paused == self.tasks:
            return
        last, self.pauses, self._paused_queues = self.pauses, state.pauses, state.paused_queues
        tasks = self.tasks = state.paused
        is_paused = _paused_by(tasks, state.paused_queues)
        for lane in self._lanes:
            lane.fetcher.pause(tasks)
            lane.source.withhold(is_paused)
        self._tell(last)

    async def end_due_pauses(self) -> bool:
        """Resume queues whose pause is over; whether that worked. A refusal is logged once."""
        try:
            await self._sessions.run(lambda connection: end_due_pauses(connection, self._context.schema))
        except Exception as error:
            if sqlstate_of(error) is None:
                raise  # the connection is lost; others report that
            level = logging.DEBUG if self._is_refused or is_retryable(error) else logging.WARNING
            logger.log(level, "queues whose pause is over cannot be resumed: %s; retrying", explained(error))
            self._is_refused = self._is_refused or level == logging.WARNING
            return False
        self._is_refused = False
        return True

    async def report_left(self, identifiers: Sequence[str]) -> None:
        """Log which ready jobs of these tasks are left because they are paused."""
        if not self.pauses:
            return
        context, paused = self._context, self.tasks
        left = await self._sessions.run(
            lambda connection: paused_jobs(
                connection, context.schema, tasks=identifiers, paused=paused, now=context.now()
            )
        )
        for pause, jobs in left:
            verb = "was" if jobs == 1 else "were"
            logger.info("%s of the paused %s %s left", count(jobs, "job"), pause.what, verb)

    def _tell(self, last: frozenset[Pause]) -> None:
        pool_id, emit = self._context.pool_id, self._context.events.emit
        known = {_target(pause) for pause in self.pauses}
        for pause in sorted(last - self.pauses, key=_target):
            if _target(pause) not in known:  # otherwise its terms have changed
                emit(PoolResumed(pool_id=pool_id, pause=pause))
        for pause in sorted(self.pauses - last, key=_target):
            emit(PoolPaused(pool_id=pool_id, pause=pause))


def _target(pause: Pause) -> tuple[str, str]:
    return pause.task_identifier or "", pause.queue_name or ""


def _paused_by(tasks: frozenset[str], queues: frozenset[int]) -> Callable[[Job], bool] | None:
    """Whether a job must not be started; None if all may."""
    if EVERY_TASK in tasks:
        return lambda job: True
    if tasks or queues:
        return lambda job: job.task_identifier in tasks or job.job_queue_id in queues
    return None
