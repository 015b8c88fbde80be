"""Handles: a job, or only its id, with methods to follow it.

Written by `make reference` from `handle.py`: change that file, not this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import astuple

from ..errors import InvalidArgumentError
from ..values.job import Job

if TYPE_CHECKING:
    from ..database.statements.manage_jobs import CancelReport
    from ..history.task_reports import Progress
    from .job_status import JobStatus


class SyncJobFollower(Protocol):
    """The part of a client that a handle uses: its `jobs`."""

    def wait_for(self, job: int, *, timeout: float | timedelta | None = None) -> Any: ...

    def get_status(self, job: int) -> JobStatus: ...

    def cancel(self, job: int, *, reason: str | None = None) -> CancelReport: ...

    def watch(self, job: int) -> Iterator[Progress]: ...


class SyncFollowed:
    """The methods of a handle."""

    __slots__ = ()

    if TYPE_CHECKING:
        id: int
        _client: SyncJobFollower

    def result(self, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end and return what the task returned; see `SyncWorkerUtils.wait_for`."""
        return self._client.wait_for(self.id, timeout=timeout)

    def status(self) -> JobStatus:
        """How the job stands now."""
        return self._client.get_status(self.id)

    def cancel(self, reason: str | None = None) -> bool:
        """Delete the job, or ask its worker to end it if it is running; waiters get JobCancelledError.

        Returns False if that is not possible: the job has ended, or its worker cannot be asked. The reason is
        kept with the job. A running job that completes before its worker ends it has completed.
        """
        report = self._client.cancel(self.id, reason=reason)
        return bool(report.removed or report.asked)

    def watch(self) -> Iterator[Progress]:
        """The progress that the task reports, until the job ends."""
        return self._client.watch(self.id)


class SyncJobHandle(SyncFollowed, Job, frozen=True, kw_only=True):
    """A job that is kept when it is finished: `handle.result()` waits for it."""

    _client: SyncJobFollower
    _is_existing: bool = False

    @property
    def is_existing(self) -> bool:
        """Whether an add found this job instead of adding one, because the job is unique."""
        return self._is_existing


class SyncJobReference(SyncFollowed, msgspec.Struct, frozen=True, kw_only=True):
    """The handle of a job of which only the id is known."""

    id: int
    _client: SyncJobFollower

    def __repr__(self) -> str:
        return f"SyncJobReference(id={self.id})"


def make_handle(client: SyncJobFollower, job: Job | int) -> SyncJobHandle | SyncJobReference:
    """A `SyncJobHandle` for a job, or a `SyncJobReference` for its id."""
    if isinstance(job, Job):
        fields = astuple(job)[: len(Job.__struct_fields__)]
        return SyncJobHandle(*fields, _client=client, _is_existing=job.is_existing)
    if isinstance(job, int) and not isinstance(job, bool):
        return SyncJobReference(id=job, _client=client)
    raise InvalidArgumentError("job", f"expected a job or its id, got {job!r}")
