"""`@task`: makes a task of a function, typed so that its payload's type is known wherever it is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack, overload

from ..errors import TaskLoadError
from .helpers import JobHelpers
from .task import AnyTask, Task, TaskOptions

P = TypeVar("P")
R = TypeVar("R")


@overload
def task(function: Callable[[], R], /) -> Task[None, [], R]: ...
@overload
def task(function: Callable[[JobHelpers], R], /) -> Task[None, [JobHelpers], R]: ...
@overload
def task(function: Callable[[P], R], /) -> Task[P, [P], R]: ...
@overload
def task(function: Callable[[P, JobHelpers], R], /) -> Task[P, [P, JobHelpers], R]: ...
@overload
def task(identifier: str | None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
def task(function_or_identifier: Any = None, /, **options: Any) -> Any:
    """Make a task of a function: `@task`, `@task("users/email/verify")`, `@task(queue_name="mail")`.

    The identifier is the function's name unless given. The options are those of a job (queue_name,
    max_attempts, priority, job_key, job_key_mode, flags) and hold for jobs added with the task object.
    """
    if function_or_identifier is None or isinstance(function_or_identifier, str):
        return TaskDecorator(function_or_identifier, options)
    if options:
        raise TaskLoadError(
            "task(function, ...) takes no options; write @task(queue_name=...) over the function"
        )
    return _make(function_or_identifier, None, {}, depth=2)


class TaskDecorator:
    """What `@task(...)` with arguments gives: turns the function below it into a task."""

    def __init__(self, identifier: str | None, options: Mapping[str, Any]) -> None:
        self._identifier = identifier
        self._options = options

    @overload
    def __call__(self, function: Callable[[], R], /) -> Task[None, [], R]: ...
    @overload
    def __call__(self, function: Callable[[JobHelpers], R], /) -> Task[None, [JobHelpers], R]: ...
    @overload
    def __call__(self, function: Callable[[P], R], /) -> Task[P, [P], R]: ...
    @overload
    def __call__(self, function: Callable[[P, JobHelpers], R], /) -> Task[P, [P, JobHelpers], R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return _make(function, self._identifier, self._options, depth=2)


def as_task(thing: Any, identifier: str | None = None) -> AnyTask:
    """A task as it is, or a task made of a plain function; under `identifier` if one is given."""
    if isinstance(thing, Task):
        return thing if identifier is None else thing.with_identifier(identifier)
    return Task(thing, identifier)


def _make(function: Any, identifier: str | None, options: Mapping[str, Any], *, depth: int) -> AnyTask:
    if isinstance(function, Task):
        raise TaskLoadError(f"{function!r} is a task already; remove the second @task")
    # Types defined inside a function are not among its module's names, so its local ones are looked at too.
    frame = sys._getframe(depth)
    local_names = None if frame.f_locals is frame.f_globals else frame.f_locals
    return Task(
        function, identifier, options, module=frame.f_globals.get("__name__"), local_names=local_names
    )
