"""Injection from a container of dishka, with a request scope for each job.

    @task
    @inject
    async def welcome(payload: Welcome, mailer: FromDishka[Mailer]) -> None: ...

The container is an extension of the worker: a lifespan yields it, or `setup_dishka` adds it to an app. The
scope is entered in the task's own thread and left with the task's exception.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import wraps
from inspect import BoundArguments, Parameter, Signature
from typing import Any, Final, ParamSpec, TypeVar, cast

try:
    from dishka import AsyncContainer, Container, FromDishka, Provider, Scope, from_context
    from dishka.integrations.base import default_parse_dependency
except ModuleNotFoundError as error:
    if error.name != "dishka":
        raise
    raise ImportError("dishka is not installed: pip install 'graphile-worker[dishka]'") from error

from ..runner.application import App
from ..tasks.helpers import JobHelpers
from ..tasks.services import Extensions
from ..tasks.task import Task
from ..values.job import Job

__all__ = ["FromDishka", "GraphileWorkerProvider", "inject", "setup_dishka"]

P = ParamSpec("P")
R = TypeVar("R")

CONTAINER: Final = "dishka_container"
HELPERS: Final = "dishka_helpers"


class GraphileWorkerProvider(Provider):
    """Gives other providers the running `Job` and its `JobHelpers`, in the scope of a request."""

    job = from_context(provides=Job, scope=Scope.REQUEST)
    helpers = from_context(provides=JobHelpers, scope=Scope.REQUEST)


def setup_dishka(container: AsyncContainer | Container, app: App) -> None:
    """Use this container for the tasks of an app.

    Coroutines need an `AsyncContainer`, other tasks a `Container`. An app can have both, and closes neither.
    """
    kind = AsyncContainer if isinstance(container, AsyncContainer) else Container
    app.extensions = app.extensions._updated(Extensions({kind: container}))


def inject(function: Callable[P, R]) -> Callable[P, R]:
    """Fill parameters like `mailer: FromDishka[Mailer]` for each job. Write it below `@task`.

    Other calls of the function pass these arguments themselves.
    """
    if isinstance(function, Task):
        raise TypeError("@inject goes below @task, directly above the function")
    injected = _Injected(function)
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            container, helpers = kwargs.pop(CONTAINER, None), kwargs.pop(HELPERS, None)
            if container is None:
                return await function(*args, **kwargs)
            async with container(context=_context(helpers)) as scope:
                values = {
                    name: await scope.get(key.type_hint, component=key.component)
                    for name, key in injected.keys.items()
                }
                call = injected.call(args, kwargs, values)
                return await function(*call.args, **call.kwargs)

    else:

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            container, helpers = kwargs.pop(CONTAINER, None), kwargs.pop(HELPERS, None)
            if container is None:
                return function(*args, **kwargs)
            with container(context=_context(helpers)) as scope:
                values = {
                    name: scope.get(key.type_hint, component=key.component)
                    for name, key in injected.keys.items()
                }
                call = injected.call(args, kwargs, values)
                return function(*call.args, **call.kwargs)

    run.__signature__ = injected.signature  # type: ignore[attr-defined]
    return cast(Callable[P, R], run)


def _context(helpers: JobHelpers) -> dict[Any, Any]:
    return {Job: helpers.job, JobHelpers: helpers}


class _Injected:
    """A function: what dishka fills, and how the worker sees the rest."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._whole = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
        self.keys = {
            name: key
            for name, parameter in self._whole.parameters.items()
            if (key := default_parse_dependency(parameter, hints.get(name, Any))) is not None
        }
        self._rest = Signature(
            [
                parameter.replace(annotation=hints.get(name, parameter.annotation))
                for name, parameter in self._whole.parameters.items()
                if name not in self.keys
            ]
        )
        container = AsyncContainer if inspect.iscoroutinefunction(function) else Container
        self.signature = self._rest
        if self.keys:  # the worker itself fills these two, by their types
            ours = [
                Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)
                for name, kind in ((CONTAINER, container), (HELPERS, JobHelpers))
            ]
            self.signature = Signature([*self._rest.parameters.values(), *ours])

    def call(self, args: Any, kwargs: dict[str, Any], values: dict[str, Any]) -> BoundArguments:
        """The arguments for the whole function."""
        given = self._rest.bind(*args, **kwargs).arguments
        return BoundArguments(self._whole, cast(Any, {**given, **values}))
