"""JobHelpers: the second argument of a task, and the way to the current job from anywhere below it.

One is made per job on the hot path, so it holds the job, the slot's id and a reference to what all jobs
share; everything else is built when it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import msgspec

from ..db.connection import Connection, Row
from ..errors import JobInterruptedError
from ..job import Job
from ..spec import JobOptions, JobSpec, TaskLike
from .abort_signal import AbortSignal
from .extensions import Extensions
from .job_logger import JobLogger
from .services import WorkerServices

if TYPE_CHECKING:
    from .sync_helpers import SyncHelpers

T = TypeVar("T")
P = TypeVar("P")

current_job: ContextVar[JobHelpers] = ContextVar("graphile_worker_current_job")
"""The helpers of the job that runs in this context; set for coroutines and for threads."""


def get_current_job() -> Job:
    """The job that is running here; LookupError outside a task."""
    return get_current_helpers().job


def get_current_helpers() -> JobHelpers:
    """The helpers of the job that is running here; LookupError outside a task."""
    try:
        return current_job.get()
    except LookupError:
        raise LookupError("no job is running here: this code was not called from a task") from None


class JobHelpers(msgspec.Struct, eq=False, weakref=True):
    """What a task can ask its worker for."""

    job: Job
    """The job as it was when it was fetched."""
    _services: WorkerServices
    worker_id: str
    _logger: JobLogger | None = None

    @property
    def logger(self) -> JobLogger:
        """A logger whose records say which worker, task and job they belong to."""
        if self._logger is None:
            self._logger = JobLogger(self._services.logger, self.job, self.worker_id)
        return self._logger

    @property
    def sync(self) -> SyncHelpers:
        """The same for tasks that are plain functions and run in a thread: calls that block."""
        from .sync_helpers import SyncHelpers

        return SyncHelpers(self, self._services.loop)

    # -- jobs ----------------------------------------------------------------------------------------------

    @overload
    async def add_job(
        self,
        task: TaskLike[P],
        payload: P,
        *,
        connection: Connection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...
    @overload
    async def add_job(
        self,
        task: str | TaskLike[None],
        payload: object = None,
        *,
        connection: Connection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...
    @overload
    async def add_job(self, spec: JobSpec, /, *, connection: Connection | None = None) -> Job: ...
    async def add_job(
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: Connection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Add a job; it stays even if this task fails later, unless `connection` is in a transaction."""
        return await self._services.client.add_job(task, payload, connection=connection, **options)

    async def add_jobs(
        self,
        specs: Iterable[JobSpec],
        *,
        return_jobs: bool = True,
        connection: Connection | None = None,
    ) -> list[Job]:
        """Add many jobs in one transaction; the result is in the order of the specs."""
        return await self._services.client.add_jobs(specs, return_jobs=return_jobs, connection=connection)

    async def get_queue_name(self, queue_id: int | None = None) -> str | None:
        """The name of this job's queue, or of the queue with this id; None for a job without a queue.

        Names that are known need no round trip; others are asked for together after a short delay.
        """
        if queue_id is None:
            queue_id = self.job.job_queue_id
            if queue_id is None:
                return None
        return await self._services.queue_names.get(queue_id)

    # -- the database --------------------------------------------------------------------------------------

    def with_pg_client(self) -> AbstractAsyncContextManager[Connection]:
        """`async with helpers.with_pg_client() as connection:` borrows a connection of the worker's pool."""
        return self._services.acquire()

    async def query(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement with `$1` parameters on a connection of the worker's pool; its rows."""
        async with self._services.acquire() as connection:
            return await connection.fetch(sql, *args)

    # -- the end of the worker -----------------------------------------------------------------------------

    @property
    def abort_signal(self) -> AbortSignal:
        """Set when the worker wants the task to end."""
        return self._services.abort_signal

    def raise_if_aborted(self) -> None:
        """Raise JobInterruptedError if the worker wants the task to end; for loops, in threads too."""
        signal = self._services.abort_signal
        if signal.is_set():
            raise JobInterruptedError(signal.reason)

    async def abortable(self, awaitable: Awaitable[T]) -> T:
        """The result of `awaitable`; if the worker wants the task to end first, cancel it and raise.

        What is cancelled may clean up before JobInterruptedError is raised here.
        """
        signal = self._services.abort_signal
        work = asyncio.ensure_future(_captured(awaitable))
        if asyncio.iscoroutine(awaitable):  # it may be cancelled before it has begun
            work.add_done_callback(lambda _: awaitable.close())
        aborted = asyncio.ensure_future(signal.wait())
        try:
            if not signal.is_set():
                await asyncio.wait((work, aborted), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise JobInterruptedError(signal.reason)
        finally:
            aborted.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait((work,))
        result, exiting = work.result()
        if exiting is not None:
            raise exiting
        return result  # type: ignore[return-value]

    # -- the application -----------------------------------------------------------------------------------

    @property
    def extensions(self) -> Extensions:
        """Objects of the application that were given when the worker was started."""
        return self._services.extensions

    def extension(self, kind: type[T]) -> T:
        """The application's object of this type; ExtensionMissingError if none was given."""
        return self._services.extensions.get(kind)

    def __repr__(self) -> str:
        return f"<JobHelpers of job {self.job.id} ({self.job.task_identifier})>"


async def _captured(awaitable: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    """SystemExit must come out of the task that asked, not out of the event loop."""
    try:
        return await awaitable, None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error
