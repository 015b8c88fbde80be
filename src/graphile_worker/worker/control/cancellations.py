"""Cancellations: ends the jobs of a pool that operators have cancelled.

A prefetched job is dropped before it starts. A running one is ended by its slot; its outcome is `Cancelled`
unless the task completes in spite of it. Either way the sink deletes the job.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...db.errors import explained
from ...error_parts import is_a
from ...errors import JobInterruptedError
from ...outcome import Cancelled, Failed, Finished, Outcome
from ...recovery.cancelled_jobs import end_leftover_jobs
from ...retention import RetentionPolicy
from ..context import PoolContext
from ..lanes import Lanes
from ..run.end_reason import EndReason
from ..run.execute import Executor
from ..session.session import Sessions
from ..write.sink import Sink

logger = logging.getLogger("graphile_worker.worker")


class CancelledByRequest(EndReason, frozen=True):
    """An operator has cancelled the job."""

    rank = 2
    why: str | None = None

    @property
    def reason(self) -> str:
        return f"the job was cancelled: {self.why}" if self.why else "the job was cancelled"

    def outcome(self, own: Outcome | None, error: BaseException | None) -> Outcome:
        is_own_error = isinstance(own, Failed) and error is not None and not is_a(error, JobInterruptedError)
        return Cancelled(self.why, error if is_own_error else None)


class Cancellations:
    """What one pool does about cancelled jobs."""

    def __init__(
        self,
        context: PoolContext,
        sessions: Sessions,
        lanes: Lanes,
        executor: Executor,
        sink: Sink,
        retention_policy: RetentionPolicy | None,
    ) -> None:
        """`retention_policy`: which finished jobs are kept; None if there is no history."""
        self._context = context
        self._sessions = sessions
        self._lanes = lanes
        self._executor = executor
        self._sink = sink
        self._retention_policy = retention_policy
        self._is_failing = False
        self._missed: set[int] = set()

    def end(self, cancelled: Mapping[int, str | None]) -> bool:
        """End these jobs; call it whenever the state was read, also for the same ones.

        Whether to look once more soon: the database may know before this pool that a fetch has locked a job.
        """
        for job in self._lanes.drop(lambda job: job.id in cancelled):
            outcome = self._executor.settled(job, Cancelled(cancelled[job.id], has_started=False))
            self._sink.put(Finished(job, outcome, self._context.pool_id, 0.0))
        for job_id, reason in cancelled.items():
            self._lanes.end_job(job_id, CancelledByRequest(reason), self._context.options.timeout_grace)
        known, missed = self._missed, cancelled.keys() - self._sessions.locked_jobs.jobs.keys()
        self._missed = missed
        return bool(missed - known)

    async def end_leftovers(self) -> None:
        """End what no worker will end by itself. A failure is logged once until it works again."""
        schema, retention_policy = self._context.schema, self._retention_policy
        try:
            await self._sessions.run(
                lambda connection: end_leftover_jobs(connection, schema, retention_policy)
            )
        except Exception as error:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            logger.log(level, "cancelled jobs that are left over stay: %s; retrying", explained(error))
            self._is_failing = True
        else:
            self._is_failing = False
