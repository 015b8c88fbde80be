"""JobHandle: a job that was added with `keep`, with methods to follow it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..job import Job

if TYPE_CHECKING:
    from ..history.progress import Progress
    from .following import JobStatus
    from .worker_utils import WorkerUtils


class JobHandle(Job, frozen=True, kw_only=True):
    """A job whose end is kept: `await handle.result()` waits for it."""

    _client: WorkerUtils
    _is_existing: bool = False

    @property
    def is_existing(self) -> bool:
        """Whether an add found this job instead of adding one, because the job is unique."""
        return self._is_existing

    async def result(self, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end and return what the task returned; see `WorkerUtils.wait_for`."""
        return await self._client.wait_for(self, timeout=timeout)

    async def status(self) -> JobStatus:
        """How the job stands now."""
        return await self._client.get_job_status(self)

    async def cancel(self, reason: str | None = None) -> bool:
        """Delete the job unless it is running or has ended; those who wait get JobCancelledError.

        Returns whether it was cancelled. The reason is kept with its end.
        """
        report = await self._client.cancel_jobs([self.id], reason=reason)
        return bool(report.removed)

    def watch(self) -> AsyncIterator[Progress]:
        """The progress that the task reports, until the job ends."""
        return self._client.watch(self)
