"""Handles: a job, or only its id, with methods to follow it.

Written by `make reference` from `handle.py`: change that file, not this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol

import msgspec
from msgspec.structs import astuple

from ..errors import InvalidArgumentError
from ..values.job import Job

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ..database.statements.manage_jobs import CancelReport
    from ..history.task_reports import Progress
    from ..values.spec import TaskLike
    from .job_status import JobStatus

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class SyncJobFollower(Protocol):
    """The part of a client that a handle uses: its `jobs`."""

    def wait_for(self, job: Any, *, timeout: float | timedelta | None = None) -> Any: ...

    def get_status(self, job: int) -> JobStatus: ...

    def cancel(self, job: int, *, reason: str | None = None) -> CancelReport: ...

    def watch(self, job: int) -> Iterator[Progress]: ...


class SyncHasJobs(Protocol):
    """The client of a handle: it is asked for its `jobs` only when the job is followed."""

    @property
    def jobs(self) -> SyncJobFollower: ...


class SyncFollowing(msgspec.Struct, frozen=True):
    """The client of a handle that `jobs` itself has made."""

    jobs: SyncJobFollower


class SyncFollowed(Generic[R_co]):
    """The methods of a handle."""

    __slots__ = ()

    if TYPE_CHECKING:
        id: int
        _client: SyncHasJobs

    def result(self, *, timeout: float | timedelta | None = None) -> R_co:
        """Wait for the end and return what the task returned; see `SyncWorkerUtils.wait_for`."""
        result: R_co = self._client.jobs.wait_for(self, timeout=timeout)
        return result

    def status(self) -> JobStatus:
        """How the job stands now."""
        return self._client.jobs.get_status(self.id)

    def cancel(self, reason: str | None = None) -> bool:
        """Delete the job, or ask its worker to end it if it is running; waiters get JobCancelledError.

        Returns False if that is not possible: the job has ended, or its worker cannot be asked. The reason is
        kept with the job. A running job that completes before its worker ends it has completed.
        """
        report = self._client.jobs.cancel(self.id, reason=reason)
        return bool(report.removed or report.asked)

    def watch(self) -> Iterator[Progress]:
        """The progress that the task reports, until the job ends."""
        return self._client.jobs.watch(self.id)


class SyncJobHandle(SyncFollowed[R_co], Job, frozen=True, kw_only=True):
    """A job that was added, with methods to follow it: `handle.result()` waits for its result.

    A `SyncJobHandle[int]` is a job of a task that returns an `int`. The result of a job that was added by the
    name of its task can be anything.
    """

    _client: SyncHasJobs
    _task: TaskLike[Any, R_co] | None = None
    _is_existing: bool = False

    @property
    def is_existing(self) -> bool:
        """Whether an add found this job instead of adding one, because the job is unique."""
        return self._is_existing

    def __eq__(self, other: object) -> bool:
        """A job with the same values is equal, whether it has methods or not."""
        return isinstance(other, Job) and _values_of(self) == _values_of(other)

    def __hash__(self) -> int:
        return hash(Job(*_values_of(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Job, _values_of(self)


def _values_of(job: Job) -> tuple[Any, ...]:
    return astuple(job)[: len(Job.__struct_fields__)]


class SyncJobReference(SyncFollowed[Any], msgspec.Struct, frozen=True, kw_only=True):
    """The handle of a job of which only the id is known."""

    id: int
    _client: SyncHasJobs

    def __repr__(self) -> str:
        return f"SyncJobReference(id={self.id})"


def make_handle(jobs: SyncJobFollower, job: Job | int) -> SyncJobHandle[Any] | SyncJobReference:
    """A `SyncJobHandle` for a job, or a `SyncJobReference` for its id."""
    if isinstance(job, Job):
        return handle_of(SyncFollowing(jobs), job)
    if isinstance(job, int) and not isinstance(job, bool):
        return SyncJobReference(id=job, _client=SyncFollowing(jobs))
    raise InvalidArgumentError("job", f"expected a job or its id, got {job!r}")


def handle_of(client: SyncHasJobs, job: Job) -> SyncJobHandle[Any]:
    """The job with methods that use this client; a handle of another client keeps its task."""
    task = getattr(job, "_task", None)
    return SyncJobHandle(*_values_of(job), _client=client, _task=task, _is_existing=job.is_existing)
