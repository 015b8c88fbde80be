"""JobHelpers: the second argument of a task. Code that the task calls gets it by `get_current_helpers()`.

One is made per job on the hot path, so it holds the job, the slot's id and a reference to what all jobs
share; everything else is built on first use.

`SyncHelpers` are for tasks that are plain functions and run in a thread. Each call is passed to the worker's
event loop and blocks the thread, not the worker, until it has a result. `JobLogger` is the logger of a task;
every record carries the worker, the task and the job.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from ..database.connections.connection import Connection, Row
from ..errors import InvalidArgumentError, JobInterruptedError
from ..logging.job_context import job_fields
from ..values.job import Job
from ..values.job import current_helpers as any_helpers
from ..values.spec import JobOptions, JobSpec, TaskArguments, TaskLike
from .abort_signal import AbortSignal
from .services import AddsJobs, Extensions, JobAdder, WorkerServices

if TYPE_CHECKING:
    from ..client.handle import JobHandle, SyncJobHandle
    from ..client.members.jobs import SyncJobsClient

T = TypeVar("T")
R = TypeVar("R")
Arguments = ParamSpec("Arguments")

current_helpers: ContextVar[JobHelpers] = any_helpers
"""The helpers of the job that runs in this context; set for coroutines and for threads."""

_signal_creation = Lock()  # a slot may abort a job while its thread asks for the signal


def get_current_job() -> Job:
    """The job whose task is running; LookupError outside a task."""
    return get_current_helpers().job


def get_current_helpers() -> JobHelpers:
    """The helpers of the job whose task is running; LookupError outside a task."""
    try:
        return current_helpers.get()
    except LookupError:
        raise LookupError("no job is running here: this code was not called from a task") from None


class JobHelpers(AddsJobs, msgspec.Struct, eq=False, weakref=True):
    """What a worker offers to a task."""

    job: Job
    """The job as it was when it was fetched."""
    _services: WorkerServices
    worker_id: str
    _logger: JobLogger | None = None
    _own_signal: AbortSignal | None = None
    _call: Any = None  # the `TaskCall` of a job that an executor runs
    _in_thread: Any = None  # the future of a call in a thread, until its result has arrived

    @property
    def logger(self) -> JobLogger:
        """A logger whose records carry the worker, the task and the job."""
        if self._logger is None:
            self._logger = JobLogger(self._services.logger, self.job, self.worker_id)
        return self._logger

    @property
    def sync(self) -> SyncHelpers:
        """Blocking forms of these methods, for tasks that are plain functions and run in a thread."""
        return SyncHelpers(self, self._services.loop)

    # -- jobs ----------------------------------------------------------------------------------------------

    @property
    def _client(self) -> JobAdder:
        return self._services.client

    @overload
    async def wait_for(self, job: JobHandle[R], *, timeout: float | timedelta | None = None) -> R: ...
    @overload
    async def wait_for(self, job: Job | int, *, timeout: float | timedelta | None = None) -> Any: ...
    async def wait_for(self, job: Job | int, *, timeout: float | timedelta | None = None) -> Any:
        """Wait until another job has ended and return its result; see `WorkerUtils.wait_for`.

        This task occupies its slot meanwhile, so the other job needs a free one, here or elsewhere.
        """
        return await self._services.client.jobs.wait_for(job, timeout=timeout)

    async def get_queue_name(self, queue_id: int | None = None) -> str | None:
        """The name of this job's queue, or of the queue with this id; None for a job without a queue.

        Known names need no round trip; others are requested in batches after a short delay.
        """
        if queue_id is None:
            queue_id = self.job.job_queue_id
            if queue_id is None:
                return None
        return await self._services.queue_names.get(queue_id)

    async def progress(
        self, share: float | None = None, note: str | None = None, *, data: object = None
    ) -> None:
        """Report how far the task is: `await helpers.progress(0.4, "page 12 of 30")`.

        `share` is from 0 to 1, `data` any small JSON value. It costs an assignment; the worker stores the
        latest report of each job once a second, for `utils.jobs.watch` and `graphile-worker show --follow`.
        """
        self._services.progress.report(self.job.id, share, note, data)

    # -- the database --------------------------------------------------------------------------------------

    def with_pg_client(self) -> AbstractAsyncContextManager[Connection]:
        """`async with helpers.with_pg_client() as connection:` borrows a connection of the worker's pool."""
        return self._services.acquire()

    async def query(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement with `$1` parameters on a connection of the worker's pool; its rows."""
        async with self._services.acquire() as connection:
            return await connection.fetch(sql, *args)

    # -- ending early --------------------------------------------------------------------------------------

    @property
    def abort_signal(self) -> AbortSignal:
        """Set when this task should end: the worker stops, or this job alone is aborted."""
        if self._own_signal is None:
            with _signal_creation:
                if self._own_signal is None:
                    self._own_signal = self._services.abort_signal._child()
        return self._own_signal

    def raise_if_aborted(self) -> None:
        """Raise JobInterruptedError if the task should end; for loops, in threads too."""
        if self._is_aborted:
            raise JobInterruptedError(self.abort_signal.reason)

    @property
    def _is_aborted(self) -> bool:
        own = self._own_signal
        return (self._services.abort_signal if own is None else own).is_set()

    def _end_early(self, cause: Any, grace: float) -> None:
        """Ask the task to end because of a `EndReason`, which decides the outcome of the job."""
        signal = self.abort_signal
        signal._cause, signal._grace = cause, grace
        signal.set(cause.reason)

    @property
    def _cause(self) -> Any:
        """Why the worker ends this job alone; None if it does not."""
        own = self._own_signal
        return None if own is None else own._cause

    async def abortable(self, awaitable: Awaitable[T]) -> T:
        """The result of `awaitable`; if the task should end first, cancel it and raise.

        The cancelled awaitable may clean up before JobInterruptedError is raised here.
        """
        signal = self.abort_signal
        work = asyncio.ensure_future(_captured(awaitable))
        if asyncio.iscoroutine(awaitable):  # it may be cancelled before it starts
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
        """The application's objects that were passed when the worker was started."""
        return self._services.extensions

    def extension(self, kind: type[T]) -> T:
        """The application's object of this type; ExtensionMissingError if there is none."""
        return self._services.extensions.get(kind)

    def __repr__(self) -> str:
        return f"<JobHelpers of job {self.job.id} ({self.job.task_identifier})>"


async def _captured(awaitable: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    """Return SystemExit as a value: raised in an asyncio task of its own, it would end the event loop."""
    try:
        return await awaitable, None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


class _AsyncHelpers(Protocol):
    """The asynchronous methods that have a blocking form."""

    @property
    def _services(self) -> WorkerServices: ...

    async def add_job(
        self, task: Any, payload: Any = None, **options: Unpack[JobOptions]
    ) -> JobHandle[Any]: ...

    async def wait_for(self, job: Any, *, timeout: float | timedelta | None = None) -> Any: ...

    async def add_jobs(self, specs: Iterable[JobSpec], *, return_jobs: bool = True) -> list[Job]: ...

    async def query(self, sql: str, *args: Any) -> Sequence[Row]: ...

    async def get_queue_name(self, queue_id: int | None = None) -> str | None: ...

    async def progress(
        self, share: float | None = None, note: str | None = None, *, data: object = None
    ) -> None: ...


class ThreadCalls:
    """Passes the calls of a job's handle to the worker's event loop, for tasks in threads."""

    bound = None

    def __init__(self, client: JobAdder, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        """`run` runs a coroutine there and waits for its result."""
        self._client = client
        self._run = run

    @property
    def jobs(self) -> SyncJobsClient:
        """What follows the job."""
        from ..client.members.jobs import SyncJobsClient

        return SyncJobsClient(self)

    def run(
        self, connection: None, call: Callable[[Any], Coroutine[Any, Any, Any]], *, is_long: bool = False
    ) -> Any:
        """The result of a call; none has a time limit."""
        return self._run(call(self._client))


class SyncHelpers:
    """Blocking forms of the asynchronous helpers."""

    __slots__ = ("_helpers", "_loop")

    def __init__(self, helpers: _AsyncHelpers, loop: asyncio.AbstractEventLoop) -> None:
        self._helpers = helpers
        self._loop = loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine on the worker's loop and wait for its result."""
        if asyncio._get_running_loop() is self._loop:
            coroutine.close()
            raise RuntimeError(
                "helpers.sync blocks, so it must not be used in an async task: there, await the method of "
                "the same name on helpers itself"
            )
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise
        return future.result()

    @overload
    def add_job(
        self, task: str, payload: object = None, **options: Unpack[JobOptions]
    ) -> SyncJobHandle[Any]: ...
    @overload
    def add_job(self, spec: JobSpec, /) -> SyncJobHandle[Any]: ...
    @overload
    def add_job(
        self, task: TaskLike[None, R], payload: None = None, **options: Unpack[JobOptions]
    ) -> SyncJobHandle[R]: ...
    @overload
    def add_job(
        self, task: TaskArguments[Arguments, R], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> SyncJobHandle[R]: ...
    def add_job(  # type: ignore[misc]
        self, task: Any, payload: Any = None, **options: Unpack[JobOptions]
    ) -> SyncJobHandle[Any]:
        """Add a job, on a connection of the worker."""
        from ..client.handle import sync_handle_of

        job = self.run(self._helpers.add_job(task, payload, **options))
        return sync_handle_of(ThreadCalls(self._helpers._services.client, self.run), job)

    @overload
    def wait_for(self, job: SyncJobHandle[R], *, timeout: float | timedelta | None = None) -> R: ...
    @overload
    def wait_for(self, job: Job | int, *, timeout: float | timedelta | None = None) -> Any: ...
    def wait_for(self, job: Job | int, *, timeout: float | timedelta | None = None) -> Any:
        """Wait until another job has ended and return its result."""
        return self.run(self._helpers.wait_for(job, timeout=timeout))

    def add_jobs(self, specs: Iterable[JobSpec], *, return_jobs: bool = True) -> list[Job]:
        """Add many jobs in one transaction; the result is in the order of the specs."""
        return self.run(self._helpers.add_jobs(specs, return_jobs=return_jobs))

    def query(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement with `$1` parameters on a connection of the worker's pool; its rows."""
        return self.run(self._helpers.query(sql, *args))

    def get_queue_name(self, queue_id: int | None = None) -> str | None:
        """The name of this job's queue, or of the queue with this id."""
        return self.run(self._helpers.get_queue_name(queue_id))

    def progress(self, share: float | None = None, note: str | None = None, *, data: object = None) -> None:
        """Report how far the task is."""
        self.run(self._helpers.progress(share, note, data=data))


if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

LABEL = "job"
PREFIX = "task %s (job %d): "
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Attributes of every record, which `extra` must not replace."""


class JobLogger(_Adapter):
    """A logger for one job. Each message begins with the task and the job, whatever formats it.

    Records carry `label`, `pool_id`, `worker_id`, `task_identifier`, `job_id`, `attempt` and `max_attempts`.
    """

    def __init__(self, logger: logging.Logger, job: Job, worker_id: str) -> None:
        super().__init__(logger, {"label": LABEL, **job_fields(job, worker_id)})
        self._job = job

    def scope(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> JobLogger:
        """A logger whose records carry more fields: `helpers.logger.scope(label="bank", order=17)`.

        Text lines begin with `label`; JSON lines have all fields.
        """
        added = {**(fields or {}), **more}
        for name in added:
            if name in _RESERVED:
                raise InvalidArgumentError(
                    name, "every log record has an attribute of that name; choose another"
                )
        scoped = copy.copy(self)
        scoped.extra = {**(self.extra or {}), **added}
        return scoped

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        given = kwargs.get("extra")
        kwargs["extra"] = {**given, **(self.extra or {})} if given else self.extra
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; all other methods call this one.

        Task and job are arguments of the message: tools that group records by it would otherwise see a new
        message for each job.
        """
        if not self.isEnabledFor(level):
            return
        text, arguments = with_prefix(self._job, msg, args)
        text, kwargs = self.process(text, kwargs)  # type: ignore[assignment]
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller, not this method
        self.logger.log(level, text, *arguments, **kwargs)


def with_prefix(job: Job, msg: object, args: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """A message and its arguments that begin with the name of the job."""
    if len(args) == 1 and isinstance(args[0], Mapping):  # `%(name)s`: no other arguments can be added
        return f"task {job.task_identifier} (job {job.id}): ".replace("%", "%%") + str(msg), args
    if args:
        text = str(msg)
    elif isinstance(msg, str):
        text = msg.replace("%", "%%")  # without arguments, `%` means itself
    else:
        text, args = "%s", (msg,)
    return f"{PREFIX}{text}", (job.task_identifier, job.id, *args)
