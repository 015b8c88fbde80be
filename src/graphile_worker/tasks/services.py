"""WorkerServices: what all tasks of one worker share. The worker builds it once; helpers refer to it.

Extensions: objects of the application, passed when a worker starts, that tasks request by type.

A database of your own, an HTTP client, settings: pass them once as `extensions=[client, settings]`, and get
them in every task as `helpers.extension(Client)`, typed.

Functions to call in place of those that `Depends` names: how tests replace what tasks depend on.

Where the progress that tasks report goes: to the worker, once it listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar, Unpack, overload

import msgspec

from ..database.connections.connection import Connection, UserConnection
from ..errors import ConfigError, ExtensionMissingError
from ..history.progress import ProgressReport, checked_report
from ..values.job import Job
from ..values.spec import JobOptions, JobSpec
from .abort_signal import AbortSignal
from .queue_names import QueueNames

T = TypeVar("T")
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

    def add_job(
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Awaitable[Job]: ...

    def add_jobs(
        self,
        specs: Iterable[JobSpec],
        *,
        return_jobs: bool = True,
        connection: UserConnection | None = None,
    ) -> Awaitable[list[Job]]: ...


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
