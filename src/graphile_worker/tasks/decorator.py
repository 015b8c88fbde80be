"""`@task`: makes a function a task, typed with its payload."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload
from weakref import WeakSet

from ..errors import TaskLoadError
from .helpers import JobHelpers
from .task import AnyTask, Task, TaskOptions

P = TypeVar("P")
R = TypeVar("R")
Injected = ParamSpec("Injected")

declared_tasks: WeakSet[AnyTask] = WeakSet()
"""Every task that `@task` has made in this process; tests use it to tell unknown names from known ones."""


@overload
def task(
    function: Callable[[JobHelpers], Coroutine[Any, Any, R]], /
) -> Task[Any, R, [JobHelpers], Coroutine[Any, Any, R]]: ...
@overload
def task(function: Callable[[JobHelpers], R], /) -> Task[Any, R, [JobHelpers], R]: ...
@overload
def task(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[P, Injected], Coroutine[Any, Any, R]], /
) -> Task[P, R, Concatenate[P, Injected], Coroutine[Any, Any, R]]: ...
@overload
def task(function: Callable[Concatenate[P, Injected], R], /) -> Task[P, R, Concatenate[P, Injected], R]: ...
@overload
def task(function: Callable[[], Coroutine[Any, Any, R]], /) -> Task[None, R, [], Coroutine[Any, Any, R]]: ...
@overload
def task(function: Callable[[], R], /) -> Task[None, R, [], R]: ...
@overload
def task(  # type: ignore[overload-cannot-match]
    function: Callable[Injected, Coroutine[Any, Any, R]], /
) -> Task[None, R, Injected, Coroutine[Any, Any, R]]: ...
@overload
def task(  # type: ignore[overload-cannot-match]
    function: Callable[Injected, R], /
) -> Task[None, R, Injected, R]: ...
@overload
def task(identifier: str | None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
def task(function_or_identifier: Any = None, /, **options: Any) -> Any:
    """Make a function a task: `@task`, `@task("users/email/verify")`, `@task(queue_name="mail")`.

    The default identifier is the function's name. The options of a job (queue_name, max_attempts, priority,
    job_key, job_key_mode, unique, flags, tags) apply to its jobs, unless an add sets its own. The
    `queue_name` may be a function, which gets the payload. The others are rules of the task: how its jobs are
    retried (retry, retry_on, dont_retry, give_up_after), when they expire (expires), how long an attempt may
    run (timeout, on_timeout), where and how many of them run (executor, lane, limit,
    queue_concurrency), what is added when a job has failed permanently (on_failure), what is kept (keep,
    keep_payload).
    """
    if function_or_identifier is None or isinstance(function_or_identifier, str):
        return TaskDecorator(function_or_identifier, options)
    if options:
        raise TaskLoadError(
            "task(function, ...) takes no options; write @task(queue_name=...) over the function"
        )
    return _make(function_or_identifier, None, {}, depth=2)


class TaskDecorator:
    """Returned by `@task(...)` with arguments."""

    def __init__(self, identifier: str | None, options: Mapping[str, Any]) -> None:
        self._identifier = identifier
        self._options = options

    @overload
    def __call__(
        self, function: Callable[[JobHelpers], Coroutine[Any, Any, R]], /
    ) -> Task[Any, R, [JobHelpers], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[[JobHelpers], R], /) -> Task[Any, R, [JobHelpers], R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[P, Injected], Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Concatenate[P, Injected], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[P, Injected], R], /
    ) -> Task[P, R, Concatenate[P, Injected], R]: ...
    @overload
    def __call__(
        self, function: Callable[[], Coroutine[Any, Any, R]], /
    ) -> Task[None, R, [], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[[], R], /) -> Task[None, R, [], R]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, function: Callable[Injected, Coroutine[Any, Any, R]], /
    ) -> Task[None, R, Injected, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, function: Callable[Injected, R], /
    ) -> Task[None, R, Injected, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return _make(function, self._identifier, self._options, depth=2)


def as_task(thing: Any, identifier: str | None = None) -> AnyTask:
    """The task itself, or a task made from a function; with another identifier if one is passed."""
    if isinstance(thing, Task):
        return thing if identifier is None else thing.with_identifier(identifier)
    return Task(thing, identifier)


def _make(function: Any, identifier: str | None, options: Mapping[str, Any], *, depth: int) -> AnyTask:
    if isinstance(function, Task):
        raise TaskLoadError(f"{function!r} is a task already; remove the second @task")
    # Types defined inside a function are not in the module's namespace, so annotations need the local names.
    frame = sys._getframe(depth)
    local_names = None if frame.f_locals is frame.f_globals else frame.f_locals
    made: AnyTask = Task(
        function, identifier, options, module=frame.f_globals.get("__name__"), local_names=local_names
    )
    declared_tasks.add(made)
    return made
