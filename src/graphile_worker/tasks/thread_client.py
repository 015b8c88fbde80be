"""ThreadClient: the worker's client for tasks in threads, so that they can follow the jobs that they add."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from ..client.handle import JobFollower, JobHandle
from ..client.sync_handle import SyncFollowing, SyncJobHandle, handle_of

if TYPE_CHECKING:
    from ..client.job_status import JobStatus
    from ..database.statements.manage_jobs import CancelReport
    from ..history.task_reports import Progress

T = TypeVar("T")
R = TypeVar("R")


class ThreadClient:
    """Passes each call to the worker's event loop."""

    def __init__(self, jobs: JobFollower, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        """`run` runs a coroutine there and waits for its result."""
        self._jobs = jobs
        self._run = run

    def handle(self, job: JobHandle[R]) -> SyncJobHandle[R]:
        """The job that was added, with blocking methods."""
        return handle_of(SyncFollowing(self), job)

    def wait_for(self, job: Any, *, timeout: float | timedelta | None = None) -> Any:
        return self._run(self._jobs.wait_for(job, timeout=timeout))

    def get_status(self, job: int) -> JobStatus:
        status: JobStatus = self._run(self._jobs.get_status(job))
        return status

    def cancel(self, job: int, *, reason: str | None = None) -> CancelReport:
        report: CancelReport = self._run(self._jobs.cancel(job, reason=reason))
        return report

    def watch(self, job: int) -> Iterator[Progress]:
        reports = self._jobs.watch(job)
        try:
            while (progress := self._run(_next(reports))) is not None:
                yield progress
        finally:
            self._run(_end(reports))


async def _next(reports: AsyncIterator[Progress]) -> Progress | None:
    return await anext(reports, None)


async def _end(reports: Any) -> None:
    async with aclosing(reports):
        pass
