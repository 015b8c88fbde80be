"""The part of `SyncWorkerUtils` that is written by hand: where its calls run, and what has no counterpart.

Calls with a connection of the caller, and those of a bound client, run in the caller's thread, without an
event loop. All others run on the client's own thread. Following a job does either, too.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload
from weakref import finalize

from msgspec.structs import astuple

from ..database.connections.bound import BlockingClock, BoundConnection, no_connection_to_lend, run_blocking
from ..database.connections.connection import BlockingConnection
from ..database.connections.foreign import as_blocking_connection
from ..errors import ConfigError, InvalidArgumentError
from ..history.records import CurrentState
from ..history.task_reports import Progress
from ..hooks import Hooks
from ..values.job import Job
from ..values.options import WorkerOptions
from ..values.schema_name import SchemaName
from ..values.spec import JobSpec
from .background import Background
from .handle import JobHandle
from .job_status import WATCH_INTERVAL, id_of, read_current_states, result_of, seconds_of
from .job_waiter import FIRST_POLL, LONGEST_POLL, POLL_GROWTH
from .sync_handle import SyncJobHandle, SyncJobReference
from .worker_utils import WorkerUtils

if TYPE_CHECKING:
    from ..database.statements.bulk_changes import BulkOptions
    from .background import SyncConnection
    from .sync_handle import SyncJobFollower

T = TypeVar("T")
R = TypeVar("R")


class SyncClient:
    """What all calls of a blocking client share."""

    def __init__(
        self, options: WorkerOptions, hooks: Hooks, *, home: Background | BlockingConnection
    ) -> None:
        """`home`: where calls without a connection run."""
        refuse_coroutines(hooks)
        self.schema: SchemaName = options.schema_name
        """The schema of the jobs."""
        self.hooks: Hooks = hooks
        """Events and interceptors of this client."""
        self._options = options
        self._background = home if isinstance(home, Background) else None
        self._bound = None if isinstance(home, Background) else self._on(home)
        if self._background is not None:
            finalize(self, self._background.close_soon).atexit = False

    @classmethod
    def bound(
        cls,
        connection: BlockingConnection,
        *,
        schema: str | None = None,
        hooks: Hooks | None = None,
        use_local_time: bool | None = None,
        options: WorkerOptions | None = None,
    ) -> Self:
        """A client for this connection or session alone: all its methods work in your transaction.

        It starts no thread, opens nothing and needs no closing, so it can be made for each request. Options
        that are not given come from `options` if there is such an object, else from the environment and the
        configuration file.
        """
        from .methods.base import bound_options

        chosen = bound_options(schema, use_local_time, options)
        return cls(chosen, hooks if hooks is not None else Hooks(), home=connection)

    # -- opening and closing -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.is_released:
            self.release()

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._background is not None and self._background.is_closed

    def release(self) -> None:
        """Close the client's connections and end its thread. A bound client has nothing to close."""
        if self._background is not None:
            self._background.close()

    # -- methods with something of their own ---------------------------------------------------------------

    def add_jobs(
        self,
        specs: Iterable[JobSpec],
        *,
        return_jobs: bool = True,
        connection: BlockingConnection | None = None,
    ) -> list[Job]:
        """Add many jobs in one transaction; returns them in the order of the specs.

        With `return_jobs=False` the result is empty. A generator is read in your thread. With your own
        connection it is read while jobs are added, so that millions of specs need no more memory than a few
        thousand of them; otherwise it is read before the first job is added.
        """
        if self._runs_in_background(connection):
            specs = read_here(specs)
        return self._run(
            connection, lambda utils: utils.add_jobs(specs, return_jobs=return_jobs), is_long=True
        )

    @overload
    def handle(self, job: SyncJobHandle[R]) -> SyncJobHandle[R]: ...

    @overload
    def handle(self, job: Job) -> SyncJobHandle[Any]: ...

    @overload
    def handle(self, job: int) -> SyncJobReference: ...

    def handle(self, job: Job | int) -> SyncJobHandle[Any] | SyncJobReference:
        """A handle for a job that was added elsewhere, or for its id, to wait for its end."""
        client = cast("SyncJobFollower", self)
        if isinstance(job, Job):
            fields = astuple(job)[: len(Job.__struct_fields__)]
            task = getattr(job, "_task", None)
            return SyncJobHandle(*fields, _client=client, _task=task, _is_existing=job.is_existing)
        if isinstance(job, int) and not isinstance(job, bool):
            return SyncJobReference(id=job, _client=client)
        raise InvalidArgumentError("job", f"expected a job or its id, got {job!r}")

    @overload
    def wait_for(self, job: SyncJobHandle[R], *, timeout: float | timedelta | None = None) -> R: ...

    @overload
    def wait_for(
        self, job: Job | SyncJobReference | int, *, timeout: float | timedelta | None = None
    ) -> Any: ...

    def wait_for(self, job: Job | SyncJobReference | int, *, timeout: float | timedelta | None = None) -> Any:
        """Wait until the job has ended and return what its task returned.

        The result has the type that the task returns, if the job was added by its task, and else consists of
        plain JSON values. It is None if the job was completed by hand.

        Raises JobFailedError, JobCancelledError, or JobGoneError if the job was not kept; TimeoutError
        after `timeout` seconds. Jobs added with `keep` announce their end; others are looked up, at first
        every quarter of a second. A bound client looks up all jobs, on your connection: commit first.
        """
        if self._bound is not None:
            return wait_here(self._bound, job, timeout)
        return self._run_any(None, lambda utils: utils.wait_for(job, timeout=timeout), is_long=True)

    def watch(self, job: Job | int) -> Iterator[Progress]:
        """The progress that the task of a job reports, each time it changes, until the job ends."""
        if self._background is None:
            yield from watch_from_here(self._client(None), job)
        else:
            yield from watch_in_background(self._background, job)

    @contextmanager
    def with_pg_client(self) -> Iterator[SyncConnection]:
        """A connection of the client's own: `with utils.with_pg_client() as connection`."""
        from .background import lend

        if self._background is None:
            raise no_connection_to_lend()
        with lend(self._background) as connection:
            yield connection

    # -- running calls -------------------------------------------------------------------------------------

    def _run(
        self,
        connection: BlockingConnection | None,
        call: Callable[[WorkerUtils], Coroutine[Any, Any, T]],
        *,
        is_long: bool = False,
    ) -> T:
        """The result of a call. A long one has no time limit."""
        if self._background is not None and connection is None:
            result = self._background.run(call, is_long=is_long)
        else:
            result = run_blocking(call(self._client(connection)))
        if isinstance(result, JobHandle):
            return cast(T, self.handle(result))
        return result

    def _run_any(
        self,
        connection: BlockingConnection | None,
        call: Callable[[Any], Any],
        *,
        is_long: bool = False,
    ) -> Any:
        """The same for methods whose overloads say more than their parameters."""
        return self._run(connection, call, is_long=is_long)

    def _runs_in_background(self, connection: BlockingConnection | None) -> bool:
        return self._background is not None and connection is None

    def _client(self, connection: BlockingConnection | None) -> WorkerUtils:
        """The client for calls in this thread."""
        if connection is not None:
            return self._on(connection)
        assert self._bound is not None  # noqa: S101
        return self._bound

    def _on(self, connection: BlockingConnection) -> WorkerUtils:
        return WorkerUtils(
            BoundConnection(as_blocking_connection(connection)),
            schema=self.schema,
            use_local_time=self._options.use_local_time,
            hooks=self.hooks,
            clock=BlockingClock(),
            history_retention=self._options.history_retention,
        )

    def _bulk_options(self, connection: BlockingConnection | None, options: BulkOptions) -> BulkOptions:
        """The options of a change in steps; `on_step` may use this client."""
        if isinstance(options.get("stop"), asyncio.Event):
            raise InvalidArgumentError(
                "stop", "is an asyncio.Event, which belongs to an event loop; give a threading.Event"
            )
        on_step = options.get("on_step")
        if inspect.iscoroutinefunction(on_step):
            raise InvalidArgumentError("on_step", "is a coroutine function; give a plain function")
        if on_step is None or not self._runs_in_background(connection):
            return options
        return {**options, "on_step": lambda *report: asyncio.to_thread(on_step, *report)}


def read_here(values: T) -> T:
    """The values; those of a generator as a list, so that it runs in the caller's thread."""
    return cast(T, list(values)) if isinstance(values, Iterator) else values


def refuse_coroutines(hooks: Hooks) -> None:
    """Calls on the caller's connection have no event loop, so interceptors must be plain functions."""
    for interceptor in hooks.table.before_add:
        if inspect.iscoroutinefunction(interceptor):
            raise ConfigError(
                f"before_add: {interceptor.__qualname__} is a coroutine function; a blocking client takes "
                "plain functions"
            )


def wait_here(client: WorkerUtils, job: object, timeout: float | timedelta | None) -> Any:
    """Look the job up until it has ended; returns what its task returned."""
    seconds = seconds_of(timeout)
    end = None if seconds is None else time.monotonic() + seconds
    interval = FIRST_POLL
    while (current := run_blocking(_look(client, id_of(job)))).state == "pending":
        left = interval if end is None else end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        time.sleep(min(interval, left))
        interval = min(interval * POLL_GROWTH, LONGEST_POLL)
    return result_of(current, job)


async def _look(client: WorkerUtils, job_id: int) -> CurrentState:
    async with client._connection(None) as session:
        (current,) = await read_current_states(session, client.schema, [job_id])
    return current


def watch_from_here(client: WorkerUtils, job: Job | int) -> Iterator[Progress]:
    """The reports of a job, each once, until it has ended."""
    last: Progress | None = None
    while not (status := run_blocking(client.get_job_status(job))).has_ended:
        if status.progress is not None and status.progress != last:
            last = status.progress
            yield last
        time.sleep(WATCH_INTERVAL)


def watch_in_background(background: Background, job: Job | int) -> Iterator[Progress]:
    """The same, with the client's own thread waiting for the end."""

    async def begin(client: WorkerUtils) -> Any:
        return client.watch(job)

    async def next_report(_: WorkerUtils) -> Progress | None:
        return await anext(reports, None)

    async def end(_: WorkerUtils) -> None:
        async with aclosing(reports):
            pass

    reports = background.run(begin)
    try:
        while (progress := background.run(next_report, is_long=True)) is not None:
            yield progress
    finally:
        background.run(end)
