"""Injection: keyword-only parameters of a task, filled by their type or by a function.

    @task
    async def welcome(payload: Welcome, *, mailer: Mailer, session: Annotated[Session, Depends(begin)]): ...

`mailer` is an extension of the worker. `session` is what `begin` returns or yields; it may take such
parameters itself. Nothing here runs for tasks without such parameters.
"""

from __future__ import annotations

import inspect
import logging
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

import msgspec

from ..errors import ConfigError, ExtensionMissingError, TaskLoadError
from ..values.job import Job
from .helpers import JobHelpers
from .services import Extensions, Function, Overrides

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Depends(msgspec.Struct, frozen=True):
    """Marks a parameter, `Annotated[Session, Depends(open_session)]`, as the result of a function.

    A generator function yields the value once, and resumes when the task has ended; it gets the exception if
    the task failed. Each function is called once for a job.
    """

    factory: Callable[..., Any]


class Wanted(msgspec.Struct, frozen=True):
    """One parameter: filled by its type, or by a function with parameters of its own."""

    name: str
    kind: Any
    factory: Callable[..., Any] | None = None
    parameters: tuple[Wanted, ...] = ()


def injected_parameters(parameters: Iterable[inspect.Parameter]) -> tuple[inspect.Parameter, ...]:
    """Those that are filled: keyword-only ones without a default."""
    return tuple(
        parameter
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    )


class Injection:
    """Calls a function with what its keyword-only parameters want."""

    def __init__(
        self,
        function: Callable[..., Any],
        call: Callable[..., Any],
        parameters: tuple[inspect.Parameter, ...],
        *,
        is_async: bool,
        resolve: Callable[[Any], Any],
    ) -> None:
        """`call` takes payload, helpers and keywords; `resolve` turns an annotation into a type."""
        self._function = function
        self._call = call
        self._parameters = parameters
        self._is_async = is_async
        self._resolve = resolve
        self._wanted: tuple[Wanted, ...] | None = None

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """What it wants; TaskLoadError if an annotation cannot be resolved or used."""
        if self._wanted is None:
            self._wanted = self._wanted_with({})
        return self._wanted

    def _wanted_with(self, overrides: Mapping[Function, Function]) -> tuple[Wanted, ...]:
        return tuple(
            _wanted(parameter.name, self._resolve(parameter.annotation), self._is_async, (), overrides)
            for parameter in self._parameters
        )

    def _wanted_in(self, overrides: Overrides | None) -> tuple[Wanted, ...]:
        """The same for a worker with overrides."""
        return self.wanted if overrides is None else overrides.apply(self, self._wanted_with)

    def kinds(self, overrides: Overrides | None) -> set[Any]:
        """The types of the extensions that it needs."""
        return set(_kinds(self._wanted_in(overrides)))

    def invoke(self) -> Callable[[Any, JobHelpers], Any]:
        """The function as a worker calls it."""
        return self._invoke_coroutine if self._is_async else self._invoke_function

    async def _invoke_coroutine(self, payload: Any, helpers: JobHelpers) -> Any:
        async with AsyncExitStack() as stack:
            made: dict[Any, Any] = {}
            wanted = self._wanted_in(helpers._services.overrides)
            values = {each.name: await _make(each, helpers, stack, made) for each in wanted}
            return await self._call(payload, helpers, values)

    def _invoke_function(self, payload: Any, helpers: JobHelpers) -> Any:
        with ExitStack() as stack:
            made: dict[Any, Any] = {}
            wanted = self._wanted_in(helpers._services.overrides)
            values = {each.name: _make_now(each, helpers, stack, made) for each in wanted}
            return self._call(payload, helpers, values)


def check_extensions(
    tasks: Mapping[str, Any], extensions: Extensions, overrides: Overrides | None = None
) -> None:
    """Raise ConfigError if a task wants an extension that the worker does not have."""
    for identifier, task in tasks.items():
        injection: Injection | None = task._injection
        if injection is None:
            continue
        try:
            for kind in injection.kinds(overrides):
                extensions.get(kind)
        except (ExtensionMissingError, TaskLoadError) as error:
            raise ConfigError(f"the task {identifier!r} cannot run in this worker: {error}") from None


# -- what a parameter wants ----------------------------------------------------------------------------------


def _wanted(
    name: str,
    annotation: Any,
    is_async: bool,
    callers: tuple[Any, ...],
    overrides: Mapping[Function, Function],
) -> Wanted:
    kind, factory = annotation, None
    if typing.get_origin(annotation) is typing.Annotated:
        kind, *marks = typing.get_args(annotation)
        factory = next((mark.factory for mark in marks if isinstance(mark, Depends)), None)
    if factory is None:
        kind = typing.get_origin(kind) or kind
        if not isinstance(kind, type) or kind in (types.UnionType, Any, inspect.Parameter.empty):
            got = "" if annotation is inspect.Parameter.empty else f"; got {annotation!r}"
            raise TaskLoadError(
                f"the parameter {name!r} must be annotated with a class, or with "
                f"Annotated[…, Depends(function)]{got}"
            )
        return Wanted(name, kind)
    factory = overrides.get(factory, factory)
    if factory in callers:
        raise TaskLoadError(f"{_name(factory)} depends on itself")
    if not is_async and (inspect.iscoroutinefunction(factory) or inspect.isasyncgenfunction(factory)):
        raise TaskLoadError(
            f"{_name(factory)} is asynchronous, and the task that depends on it runs in a thread; make the "
            "task a coroutine, or the function a plain one"
        )
    parameters = tuple(
        _wanted(parameter.name, parameter.annotation, is_async, (*callers, factory), overrides)
        for parameter in _parameters(factory)
        if parameter.default is parameter.empty and parameter.kind not in VARIADIC
    )
    return Wanted(name, kind, factory, parameters)


def _parameters(factory: Function) -> Iterable[inspect.Parameter]:
    """Those of a function, or of a class that takes its place."""
    try:
        return inspect.signature(factory, eval_str=True).parameters.values()
    except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise TaskLoadError(f"the parameters of {_name(factory)} cannot be resolved ({error})") from error


def _kinds(wanted: Iterable[Wanted]) -> Iterator[Any]:
    for each in wanted:
        if each.factory is not None:
            yield from _kinds(each.parameters)
        elif each.kind not in (Job, JobHelpers, logging.Logger):
            yield each.kind


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


# -- values --------------------------------------------------------------------------------------------------


def _given(kind: Any, helpers: JobHelpers) -> Any:
    if kind is Job:
        return helpers.job
    if kind is JobHelpers:
        return helpers
    if kind is logging.Logger:
        return helpers.logger
    return helpers.extension(kind)


async def _make(wanted: Wanted, helpers: JobHelpers, stack: AsyncExitStack, made: dict[Any, Any]) -> Any:
    factory = wanted.factory
    if factory is None:
        return _given(wanted.kind, helpers)
    if factory not in made:
        values = {each.name: await _make(each, helpers, stack, made) for each in wanted.parameters}
        if inspect.isasyncgenfunction(factory):
            made[factory] = await stack.enter_async_context(asynccontextmanager(factory)(**values))
        elif inspect.isgeneratorfunction(factory):
            made[factory] = stack.enter_context(contextmanager(factory)(**values))
        else:
            value = factory(**values)
            made[factory] = await value if isinstance(value, types.CoroutineType) else value
    return made[factory]


def _make_now(wanted: Wanted, helpers: JobHelpers, stack: ExitStack, made: dict[Any, Any]) -> Any:
    factory = wanted.factory
    if factory is None:
        return _given(wanted.kind, helpers)
    if factory not in made:
        values = {each.name: _make_now(each, helpers, stack, made) for each in wanted.parameters}
        if inspect.isgeneratorfunction(factory):
            made[factory] = stack.enter_context(contextmanager(factory)(**values))
        else:
            made[factory] = factory(**values)
    return made[factory]
