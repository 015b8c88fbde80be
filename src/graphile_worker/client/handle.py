"""What `add_job` returns, and what it takes.

A handle is a job, or only its id, with methods to follow it; the blocking client has handles of its own. An
`AddedTask` is a task as type checkers see it when a job is added. `add_job` takes a task and then its payload
and options; a parameter of that type tells a type checker what may follow the task, before it looks at the
payload. So the message about a wrong payload says which type was expected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol

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

Arguments = ParamSpec("Arguments")


class JobFollower(Protocol):
    """The part of a client that a handle uses: its `jobs`."""

    async def wait_for(self, job: Any, *, timeout: float | timedelta | None = None) -> Any: ...

    async def get_status(self, job: int) -> JobStatus: ...

    async def cancel(self, job: int, *, reason: str | None = None) -> CancelReport: ...

    def watch(self, job: int) -> AsyncIterator[Progress]: ...


class Following(msgspec.Struct, frozen=True):
    """The client of a handle that `jobs` itself has made; others are asked for it when a job is followed."""

    jobs: Any


class Followed(Generic[R_co]):
    """The methods of a handle."""

    __slots__ = ()

    if TYPE_CHECKING:
        id: int
        _client: Any

    async def result(self, *, timeout: float | timedelta | None = None) -> R_co:
        """Wait for the end and return what the task returned; see `WorkerUtils.wait_for`."""
        result: R_co = await self._client.jobs.wait_for(self, timeout=timeout)
        return result

    async def status(self) -> JobStatus:
        """How the job stands now."""
        status: JobStatus = await self._client.jobs.get_status(self.id)
        return status

    async def cancel(self, reason: str | None = None) -> bool:
        """Delete the job, or ask its worker to end it if it is running; waiters get JobCancelledError.

        Returns False if that is not possible: the job has ended, or its worker cannot be asked. The reason is
        kept with the job. A running job that completes before its worker ends it has completed.
        """
        report = await self._client.jobs.cancel(self.id, reason=reason)
        return bool(report.removed or report.asked)

    def watch(self) -> AsyncIterator[Progress]:
        """The progress that the task reports, until the job ends."""
        reports: AsyncIterator[Progress] = self._client.jobs.watch(self.id)
        return reports


class SyncFollowed(Generic[R_co]):
    """The methods of a handle of the blocking client."""

    __slots__ = ()

    if TYPE_CHECKING:
        id: int
        _client: Any

    def result(self, *, timeout: float | timedelta | None = None) -> R_co:
        """Wait for the end and return what the task returned; see `SyncWorkerUtils.wait_for`."""
        result: R_co = self._client.jobs.wait_for(self, timeout=timeout)
        return result

    def status(self) -> JobStatus:
        """How the job stands now."""
        status: JobStatus = self._client.jobs.get_status(self.id)
        return status

    def cancel(self, reason: str | None = None) -> bool:
        """Delete the job, or ask its worker to end it if it is running; waiters get JobCancelledError.

        Returns False if that is not possible: the job has ended, or its worker cannot be asked. The reason is
        kept with the job. A running job that completes before its worker ends it has completed.
        """
        report = self._client.jobs.cancel(self.id, reason=reason)
        return bool(report.removed or report.asked)

    def watch(self) -> Iterator[Progress]:
        """The progress that the task reports, until the job ends."""
        reports: Iterator[Progress] = self._client.jobs.watch(self.id)
        return reports


class AddedJob(Job, frozen=True, kw_only=True):
    """A job that was added, with the client that can follow it."""

    _client: Any
    _task: TaskLike[Any, Any] | None = None
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


class JobHandle(Followed[R_co], AddedJob, frozen=True, kw_only=True):
    """A job that was added, with methods to follow it: `await handle.result()` waits for its result.

    A `JobHandle[int]` is a job of a task that returns an `int`. The result of a job that was added by the
    name of its task can be anything.
    """


class SyncJobHandle(SyncFollowed[R_co], AddedJob, frozen=True, kw_only=True):
    """A job that was added, with methods to follow it: `handle.result()` waits for its result.

    A `SyncJobHandle[int]` is a job of a task that returns an `int`. The result of a job that was added by the
    name of its task can be anything.
    """


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a job, with the client that can follow it."""

    id: int
    _client: Any

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id})"


class JobReference(Followed[Any], Reference, frozen=True, kw_only=True):
    """The handle of a job of which only the id is known."""


class SyncJobReference(SyncFollowed[Any], Reference, frozen=True, kw_only=True):
    """The handle of a job of which only the id is known."""


def make_handle(jobs: JobFollower, job: Job | int) -> JobHandle[Any] | JobReference:
    """A `JobHandle` for a job, or a `JobReference` for its id."""
    client = Following(jobs)
    if isinstance(job, Job):
        return JobHandle(*_values_of(job), **_rest_of(client, job))
    return JobReference(id=_checked_id(job), _client=client)


def make_sync_handle(jobs: Any, job: Job | int) -> SyncJobHandle[Any] | SyncJobReference:
    """The same for the blocking client."""
    client = Following(jobs)
    if isinstance(job, Job):
        return sync_handle_of(client, job)
    return SyncJobReference(id=_checked_id(job), _client=client)


def sync_handle_of(client: Any, job: Job) -> SyncJobHandle[Any]:
    """The job with blocking methods that use this client."""
    return SyncJobHandle(*_values_of(job), **_rest_of(client, job))


def _rest_of(client: Any, job: Job) -> dict[str, Any]:
    """The fields of a handle after those of the job; a handle of another client keeps its task."""
    return {"_client": client, "_task": getattr(job, "_task", None), "_is_existing": job.is_existing}


def _checked_id(job: object) -> int:
    if isinstance(job, int) and not isinstance(job, bool):
        return job
    raise InvalidArgumentError("job", f"expected a job or its id, got {job!r}")


class AddedTask(Protocol[Arguments, R_co]):
    """A task by the arguments of `WorkerUtils.add_job` after it, and the type of what it returns."""

    def _add(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None: ...

    def decode_result(self, raw: str, /) -> R_co: ...


class SyncAddedTask(Protocol[Arguments, R_co]):
    """The same for `SyncWorkerUtils.add_job`."""

    def _add_blocking(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None: ...

    def decode_result(self, raw: str, /) -> R_co: ...
