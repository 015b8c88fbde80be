"""WorkerServices: what all tasks of one worker share. The worker builds it once; helpers refer to it.

- `Extensions` are objects of the application, passed when a worker starts, that tasks request by type. A
  database of your own, an HTTP client, settings: pass them once as `extensions=[client, settings]`, and get
  them in every task as `helpers.extension(Client)`, typed.
- `Overrides` are functions to call in place of those that `Depends` names: how tests replace what tasks
  depend on.
- `ProgressSink` is where the progress that tasks report goes: to the worker, once it listens.
- `QueueNames` are the names of queues by id, requested in batches and cached (QN1). A job row holds only the
  id of its queue. Requests within a short delay share one statement; cached names need none. Failures are not
  cached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from ..database.connections.connection import Connection, UserConnection
from ..errors import ConfigError, ExtensionMissingError, GraphileWorkerError, InvalidArgumentError
from ..history.task_reports import ProgressReport, checked_report
from ..values.clock import Clock, SystemClock
from ..values.job import Job
from ..values.spec import JobOptions, JobSpec, TaskLike
from .abort_signal import AbortSignal

if TYPE_CHECKING:
    # A worker that only fetches starts without the client.
    from ..client.handle import AddedTask, JobFollower, JobHandle

LookUp = Callable[[Sequence[int]], Awaitable[Sequence[str | None]]]
"""Returns names in the order of the ids, None for unknown ids."""

MAX_CACHED = 10_000  # bounds memory when there is a queue per customer


class QueueNames:
    """A cache over `look_up` that batches requests for `delay` seconds."""

    def __init__(self, look_up: LookUp, *, delay: float = 0.05, clock: Clock | None = None) -> None:
        self._look_up = look_up
        self._delay = delay
        self._clock = clock or SystemClock()
        self._names: dict[int, str] = {}
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._requested: list[int] = []
        self._flushes: set[asyncio.Task[None]] = set()

    def cached(self, queue_id: int) -> str | None:
        """The name if it is cached; never queries the database."""
        return self._names.get(queue_id)

    async def get(self, queue_id: int) -> str:
        """The name of the queue; does not suspend if it is cached. An unknown id is an error."""
        name = self._names.get(queue_id)
        if name is not None:
            return name
        waiting = self._waiting.get(queue_id)
        if waiting is None:
            waiting = self._request(queue_id)
        # A cancelled caller must not cancel the request of the others.
        return await asyncio.shield(waiting)

    async def close(self) -> None:
        """Stop; pending requests fail."""
        for flush in self._flushes:
            flush.cancel()
        if self._flushes:
            await asyncio.wait(self._flushes)
        error = GraphileWorkerError("the worker has stopped, so queue names cannot be looked up")
        self._reject(list(self._waiting), error)
        self._requested.clear()

    def _request(self, queue_id: int) -> asyncio.Future[str]:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_mark_retrieved)
        self._waiting[queue_id] = future
        self._requested.append(queue_id)
        if len(self._requested) == 1:
            flush = asyncio.create_task(self._flush_later(), name="graphile-worker queue names")
            self._flushes.add(flush)
            flush.add_done_callback(self._flushes.discard)
        return future

    async def _flush_later(self) -> None:
        await self._clock.sleep(self._delay)
        requested, self._requested = self._requested, []
        try:
            names = await self._look_up(requested)
            if len(names) != len(requested):
                raise GraphileWorkerError(
                    f"{len(requested)} queue names were requested, {len(names)} were returned"
                )
        except Exception as error:
            self._reject(requested, error)
            return
        for queue_id, name in zip(requested, names, strict=True):
            if name is None:
                message = f"there is no queue with the id {queue_id}; was it removed by a cleanup?"
                self._reject([queue_id], InvalidArgumentError("queue id", message))
            else:
                self._cache(queue_id, name)

    def _cache(self, queue_id: int, name: str) -> None:
        if len(self._names) >= MAX_CACHED:
            del self._names[next(iter(self._names))]
        self._names[queue_id] = name
        future = self._waiting.pop(queue_id)
        if not future.done():
            future.set_result(name)

    def _reject(self, queue_ids: Sequence[int], error: Exception) -> None:
        for queue_id in queue_ids:
            future = self._waiting.pop(queue_id)
            if not future.done():
                future.set_exception(error)


def _mark_retrieved(future: asyncio.Future[str]) -> None:
    """Avoid asyncio's warning when all callers were cancelled and the error is never retrieved."""
    if not future.cancelled():
        future.exception()


T = TypeVar("T")
R = TypeVar("R")
Arguments = ParamSpec("Arguments")
D = TypeVar("D")
_NO_DEFAULT: Any = object()


class Extensions:
    """Application objects by type, from a list of objects or a mapping of types to objects.

    Use a mapping when tasks ask for another type than the object's own, for example a base class.
    """

    def __init__(self, given: Iterable[object] | Mapping[type[Any], object] = ()) -> None:
        self._by_type: dict[type[Any], Any] = {}
        if isinstance(given, Extensions):
            self._by_type.update(given._by_type)
            return
        if isinstance(given, Mapping):
            for kind, value in given.items():
                if not isinstance(kind, type):
                    raise ConfigError(f"extensions: the keys must be types, got {kind!r}")
                self._by_type[kind] = value
            return
        if isinstance(given, str | bytes):
            raise ConfigError(f"extensions: expected a list of objects, got {given!r}")
        for value in given:
            if isinstance(value, type):
                raise ConfigError(f"extensions: pass an object of {value.__name__}, not the class itself")
            if type(value) in self._by_type:
                raise ConfigError(
                    f"extensions: there are two objects of type {type(value).__name__}; tasks ask by type, "
                    "so wrap one of them in a class of its own"
                )
            self._by_type[type(value)] = value

    @overload
    def get(self, kind: type[T]) -> T: ...
    @overload
    def get(self, kind: type[T], default: D) -> T | D: ...
    def get(self, kind: type[T], default: Any = _NO_DEFAULT) -> Any:
        """The object of this type, or the only object of a subclass; else the default or an error."""
        try:
            return self._by_type[kind]
        except KeyError:
            pass
        found = [value for own, value in self._by_type.items() if _is_subclass(own, kind)]
        if len(found) == 1:
            return found[0]
        if default is not _NO_DEFAULT:
            return default
        raise ExtensionMissingError(kind, [own.__name__ for own in self._by_type], ambiguous=len(found) > 1)

    def _updated(self, more: Extensions) -> Extensions:
        """These and more; of two objects of one type, those in `more` win."""
        both = Extensions(self)
        both._by_type.update(more._by_type)
        return both

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, type) and self.get(kind, None) is not None

    def __iter__(self) -> Iterator[type[Any]]:
        return iter(self._by_type)

    def __len__(self) -> int:
        return len(self._by_type)

    def __repr__(self) -> str:
        return f"Extensions({', '.join(kind.__name__ for kind in self._by_type)})"


def _is_subclass(own: type[Any], kind: type[Any]) -> bool:
    try:
        return issubclass(own, kind)
    except TypeError:  # a protocol that cannot be checked at run time
        return False


Wanted = TypeVar("Wanted")
Function = Callable[..., Any]
DependencyOverrides = Mapping[Function, Function]
"""Functions that `Depends` names, and those to call instead."""


class Overrides:
    """The overrides of one worker."""

    def __init__(self, given: DependencyOverrides) -> None:
        for original, replacement in given.items():
            for function in (original, replacement):
                if not callable(function):
                    raise ConfigError(
                        f"dependency_overrides: expected functions, got {function!r}; to give a value, write "
                        "lambda: value"
                    )
        self._given = dict(given)
        self._wanted: dict[object, Any] = {}

    def apply(
        self, injection: object, resolve: Callable[[DependencyOverrides], tuple[Wanted, ...]]
    ) -> tuple[Wanted, ...]:
        """What a task wants with them, resolved once."""
        wanted: tuple[Wanted, ...] | None = self._wanted.get(injection)
        if wanted is None:
            wanted = self._wanted[injection] = resolve(self._given)
        return wanted


def overrides_of(*given: DependencyOverrides | None) -> Overrides | None:
    """The overrides in all of these, later ones first; None without any."""
    joined = {original: instead for each in given if each for original, instead in each.items()}
    return Overrides(joined) if joined else None


class ProgressSink:
    """Shared by every job of one worker."""

    __slots__ = ("receive",)

    def __init__(self) -> None:
        self.receive: Callable[[int, ProgressReport], None] | None = None
        """Takes a job's id and its report; None if progress is not stored."""

    def connect(self, receive: Callable[[int, ProgressReport], None]) -> None:
        """Pass reports on to this from now on."""
        self.receive = receive

    def report(self, job_id: int, share: float | None, note: str | None, data: object) -> None:
        """Check a report and pass it on; may be called from any thread."""
        report = checked_report(share, note, data)
        if self.receive is not None:
            self.receive(job_id, report)


job_logger = logging.getLogger("graphile_worker.job")


class JobAdder(Protocol):
    """The part of a client that helpers use."""

    @property
    def jobs(self) -> JobFollower: ...

    def add_job(
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Awaitable[JobHandle[Any]]: ...

    def add_jobs(
        self, specs: Iterable[JobSpec], *, return_jobs: bool = True, connection: UserConnection | None = None
    ) -> Awaitable[list[Job]]: ...


class AddsJobs:
    """Adds jobs with the client of a worker: its runner, and what its tasks are given."""

    __slots__ = ()

    @property
    def _client(self) -> JobAdder:
        raise NotImplementedError

    @overload
    async def add_job(
        self,
        task: str,
        payload: object = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle[Any]: ...
    @overload
    async def add_job(
        self, spec: JobSpec, /, *, connection: UserConnection | None = None
    ) -> JobHandle[Any]: ...
    @overload
    async def add_job(
        self,
        task: TaskLike[None, R],
        payload: None = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle[R]: ...
    @overload
    async def add_job(
        self, task: AddedTask[Arguments, R], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> JobHandle[R]: ...
    async def add_job(  # type: ignore[misc]
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle[Any]:
        """Add a job, as `WorkerUtils.add_job` does.

        In a task: it stays even if the task fails later, unless `connection` is in a transaction.
        """
        return await self._client.add_job(task, payload, connection=connection, **options)

    async def add_jobs(
        self, specs: Iterable[JobSpec], *, return_jobs: bool = True, connection: UserConnection | None = None
    ) -> list[Job]:
        """Add many jobs in one transaction, as `WorkerUtils.add_jobs` does."""
        return await self._client.add_jobs(specs, return_jobs=return_jobs, connection=connection)


class WorkerServices(msgspec.Struct, frozen=True, kw_only=True):
    """Shared by every job of one worker."""

    client: JobAdder
    acquire: Callable[[], AbstractAsyncContextManager[Connection]]
    """Borrows a connection from the worker's pool for the length of an `async with` block."""
    queue_names: QueueNames
    loop: asyncio.AbstractEventLoop
    """The worker's event loop; tasks in threads pass their calls to it."""
    abort_signal: AbortSignal = msgspec.field(default_factory=AbortSignal)
    """The worker's own; the signal of each job follows it."""
    extensions: Extensions = msgspec.field(default_factory=Extensions)
    overrides: Overrides | None = None
    progress: ProgressSink = msgspec.field(default_factory=ProgressSink)
    logger: logging.Logger = job_logger
    executables_inherit_database: bool = True
    """Whether executable tasks inherit the environment variables for the worker's database."""
    environments: Sequence[Callable[[], Mapping[str, str]]] = ()
    """What `Hooks.carry_environment` was given: further variables for executable tasks."""
