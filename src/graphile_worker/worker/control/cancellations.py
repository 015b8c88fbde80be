"""Cancellations: ends the jobs of a pool that operators have cancelled.

A prefetched job is dropped before it starts. A running one is ended by its slot; its outcome is `Cancelled`
unless the task completes in spite of it. Either way the sink deletes the job.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from ...db.errors import explained
from ...error_parts import is_a
from ...errors import JobInterruptedError
from ...job import Job
from ...outcome import Cancelled, Failed, Finished, Outcome
from ..run.end_reason import EndReason
from ..run.execute import Executor
from ..session.locked_jobs import LockedJobs

logger = logging.getLogger("graphile_worker.worker")


class WaitingJobs(Protocol):
    """The part of a source that drops jobs before they start."""

    def drop(self, is_dropped: Callable[[Job], bool], /) -> list[Job]: ...


class JobEnder(Protocol):
    """The part of the slots that ends a running job."""

    def end_job(self, job_id: int, cause: EndReason, grace: float) -> bool: ...


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
        pool_id: str,
        *,
        locked_jobs: LockedJobs,
        source: WaitingJobs,
        executor: Executor,
        put: Callable[[Finished], None],
        look_again: Callable[[], None],
        grace: float,
        end_leftovers: Callable[[], Awaitable[None]],
    ) -> None:
        """`look_again`: read once more, soon, what operators ask for. `grace`: seconds for tasks to end.

        `end_leftovers`: ends cancelled jobs that have ended otherwise.
        """
        self._pool_id = pool_id
        self._locked_jobs = locked_jobs
        self._source = source
        self._executor = executor
        self._put = put
        self._look_again = look_again
        self._grace = grace
        self._end_leftovers = end_leftovers
        self._is_failing = False
        self._missed: set[int] = set()
        self.slots: JobEnder | None = None
        """None until the pool has started."""

    def end(self, cancelled: Mapping[int, str | None]) -> None:
        """End these jobs; call it whenever the state was read, also for the same ones."""
        for job in self._source.drop(lambda job: job.id in cancelled):
            outcome = self._executor.settled(job, Cancelled(cancelled[job.id], has_started=False))
            self._put(Finished(job, outcome, self._pool_id, 0.0))
        if self.slots is not None:
            for job_id, reason in cancelled.items():
                self.slots.end_job(job_id, CancelledByRequest(reason), self._grace)
        self._remember_missed(cancelled)

    async def end_leftovers(self) -> None:
        """End what no worker will end by itself. A failure is logged once until it works again."""
        try:
            await self._end_leftovers()
        except Exception as error:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            logger.log(level, "cancelled jobs that are left over stay: %s; retrying", explained(error))
            self._is_failing = True
        else:
            self._is_failing = False

    def _remember_missed(self, cancelled: Mapping[int, str | None]) -> None:
        """The database may know before this pool that a fetch has locked a job: then look once more."""
        missed = cancelled.keys() - self._locked_jobs.jobs.keys()
        if missed - self._missed:
            self._look_again()
        self._missed = missed
