"""SyncJobHandle: a job that was added with `keep`, with methods to follow it.

Written by `make reference` from `handle.py`: change that file, not this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..job import Job

if TYPE_CHECKING:
    from ..history.progress import Progress
    from .following import JobStatus
    from .sync_worker_utils import SyncWorkerUtils


class SyncJobHandle(Job, frozen=True, kw_only=True):
    """A job whose end is kept: `handle.result()` waits for it."""

    _client: SyncWorkerUtils

    def result(self, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end and return what the task returned; see `SyncWorkerUtils.wait_for`."""
        return self._client.wait_for(self, timeout=timeout)

    def status(self) -> JobStatus:
        """How the job stands now."""
        return self._client.get_job_status(self)

    def cancel(self, reason: str | None = None) -> bool:
        """Delete the job unless it is running or has ended; those who wait get JobCancelledError.

        Returns whether it was cancelled. The reason is kept with its end.
        """
        report = self._client.cancel_jobs([self.id], reason=reason)
        return bool(report.removed)

    def watch(self) -> Iterator[Progress]:
        """The progress that the task reports, until the job ends."""
        return self._client.watch(self)
